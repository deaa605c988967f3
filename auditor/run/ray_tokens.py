"""Ray's token authentication as this process would meet it: is it on, is there a token, and what to do where not.

Ray 2.60 makes a token (~/.ray/auth_token) the first time it starts a Ray of its own; a head that is started where there
is one asks everybody for it. Who then submits a job, or joins by an address, must say RAY_AUTH_MODE=token and have the
same token. Reads the environment and one file; Ray itself is not imported.
"""

import os
from dataclasses import dataclass
from pathlib import Path

MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
GET = "`ray get-auth-token` on the head prints it"


@dataclass(frozen=True, slots=True)
class TokenState:
    """`mode` is what RAY_AUTH_MODE says, empty where it is not set; `source` is where a token was found."""

    mode: str
    source: str | None

    @property
    def sent(self) -> bool:
        """Whether this process shows a token to a cluster that it names."""
        return self.mode == "token" and self.source is not None

    @property
    def hint(self) -> str:
        """What to do where a cluster asks for its token."""
        if self.source is None:
            return f"put the cluster's token into ~/.ray/auth_token or {TOKEN} ({GET}), and set {MODE}=token"
        if self.mode != "token":
            return f"set {MODE}=token: the token of {self.source} is not sent without it"
        return f"the token of {self.source} is not the cluster's ({GET})"


def token_state() -> TokenState:
    """Sources in Ray's own order: the variable, the file that a variable names, the file in the home folder."""
    named = os.environ.get(TOKEN_PATH)
    file = Path(named) if named else Path.home() / ".ray" / "auth_token"
    found = TOKEN if os.environ.get(TOKEN) else str(file) if file.is_file() and file.stat().st_size else None
    return TokenState(os.environ.get(MODE, "").lower(), found)
