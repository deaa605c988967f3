"""Ray's token authentication as this process sees it: whether it is on, where the token is, and what to do if not.

Ray 2.60 creates a token (~/.ray/auth_token) the first time it starts a cluster of its own. A head node that starts
with a token requires it from everybody. A process that submits a job, or joins by address, then needs
RAY_AUTH_MODE=token and the same token. This module reads the environment and one file; it does not import Ray.
"""

import os
from dataclasses import dataclass
from pathlib import Path

MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
GET = "`ray get-auth-token` on the head prints it"


@dataclass(frozen=True, slots=True)
class TokenState:
    """`mode` is the value of RAY_AUTH_MODE, empty if not set; `source` is the place of the token, if there is one."""

    mode: str
    source: str | None

    @property
    def sent(self) -> bool:
        """Whether this process sends a token to a cluster that it addresses."""
        return self.mode == "token" and self.source is not None

    @property
    def hint(self) -> str:
        if self.source is None:
            return f"put the cluster's token into ~/.ray/auth_token or {TOKEN} ({GET}), and set {MODE}=token"
        if self.mode != "token":
            return f"set {MODE}=token: the token of {self.source} is not sent without it"
        return f"the token of {self.source} is not the cluster's ({GET})"


def find_token() -> TokenState:
    """Find the token in Ray's own order: a variable, the file that a variable names, the file in the home folder."""
    path = os.environ.get(TOKEN_PATH)
    file = Path(path) if path else Path.home() / ".ray" / "auth_token"
    source = TOKEN if os.environ.get(TOKEN) else str(file) if file.is_file() and file.stat().st_size else None
    return TokenState(os.environ.get(MODE, "").lower(), source)
