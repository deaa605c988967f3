"""The Hugging Face hub as a store: hf://datasets/ORG/NAME[@REVISION][/PATH], with the token of HF_TOKEN.

huggingface_hub repeats most requests after 429, 5xx and lost connections; `retry` repeats the others.
"""

import contextlib
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from auditor.audit_folder.folder import StorageError

HUB = "hf://"
PAUSES = (1, 2, 4, 8, 16, 32)  # seconds between attempts
HUB_FILES = {"README.md", ".gitattributes"}  # of a new repository
EXPORTED = ["*.tar", "*.parquet", "*.json"]
REASONS = {  # by the type of an error or its status
    "GatedRepoError": "it is gated: accept its terms on its page and set HF_TOKEN",
    "RevisionNotFoundError": "there is no such revision",
    "RepositoryNotFoundError": "it does not exist or is private: check the name, or set HF_TOKEN",
    401: "HF_TOKEN is not valid",
    403: "HF_TOKEN has no right to this",
    429: "the hub limits requests: wait some minutes, or set HF_TOKEN for a higher limit",
}
T = TypeVar("T")


def connect_hub() -> Any:
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.utils import disable_progress_bars
    except ImportError as error:
        raise StorageError("hf:// needs huggingface_hub: pip install 'pau-auditor[hub]'") from error
    disable_progress_bars()
    return HfApi()


def get_status(error: object) -> int | None:
    """Return the status of an answer, 0 if the connection failed, or None for any other error."""
    status: int | None = getattr(getattr(error, "response", None), "status_code", None)
    return 0 if status is None and type(error).__module__.startswith("httpx") else status


def retry(call: Callable[[], T]) -> T:
    """Call again, with growing pauses, while the hub is busy or cannot be reached."""
    for pause in PAUSES:
        try:
            return call()
        except Exception as error:
            if get_status(error) not in (0, 408, 429, 500, 502, 503, 504):
                raise
            time.sleep(pause)
    return call()


@contextlib.contextmanager
def explain_hub_errors(url: str) -> Iterator[None]:
    """Replace the hub's answers by one line that says what to do."""
    try:
        yield
    except Exception as error:
        cause = error.__cause__ if isinstance(error, FileNotFoundError) else error
        reason = REASONS.get(type(cause).__name__) or REASONS.get(get_status(cause) or "")
        if not reason and get_status(cause) is None and type(cause).__name__ != "OfflineModeIsEnabled":
            raise
        raise StorageError(f"{url}: {reason or f'the hub cannot be reached: {cause}'}") from error


def parse_hub_url(url: str) -> tuple[dict[str, Any], str]:
    """Return the repository, as huggingface_hub's arguments, and the path in it."""
    from huggingface_hub.utils import parse_hf_uri

    try:
        parts = parse_hf_uri(url)
    except ValueError as error:
        raise StorageError(f"{url}: write hf://datasets/ORG/NAME[@REVISION][/PATH]") from error
    return {"repo_id": parts.id, "repo_type": parts.type, "revision": parts.revision}, parts.path_in_repo


def pin_revision(url: str) -> str:
    """Replace a branch by its present commit, so that the corpus does not change while it is read, or later."""
    if not url.startswith(HUB + "datasets/"):
        return url
    api, (place, path) = connect_hub(), parse_hub_url(url)
    if re.fullmatch("[0-9a-f]{40}", place["revision"] or ""):
        return url
    with explain_hub_errors(url):
        info = retry(lambda: api.repo_info(**place))
        if info.gated:
            retry(lambda: api.auth_check(place["repo_id"], repo_type="dataset"))
    return f"{HUB}datasets/{place['repo_id']}@{info.sha}/{path}".rstrip("/")


@contextlib.contextmanager
def stage_upload(target: str, *, is_folder: bool, force: bool) -> Iterator[str]:
    """Yield a local path; what is written there becomes one commit, because the hub limits the number of commits."""
    api, (place, path) = connect_hub(), parse_hub_url(target)
    folder, _, name = (path, "", "") if is_folder else path.rpartition("/")
    with explain_hub_errors(target), tempfile.TemporaryDirectory(prefix="auditor-") as scratch:
        files = retry(lambda: api.list_repo_files(**place))
        old_files = {file for file in files if not path or f"{file}/".startswith(f"{path}/")}
        if not force and not old_files <= HUB_FILES:
            raise StorageError(f"{target} exists; --force replaces it")
        yield f"{scratch}/{name}".rstrip("/")
        old = EXPORTED if force and is_folder else None
        retry(lambda: api.upload_folder(folder_path=scratch, path_in_repo=folder, delete_patterns=old, **place))
