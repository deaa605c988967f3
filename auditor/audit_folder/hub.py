"""The Hugging Face hub as a store of corpora and exports: hf://datasets/ORG/NAME[@REVISION][/PATH].

huggingface_hub lists and reads; it repeats most requests after 429, 5xx and lost connections, and `retry` the others.
The token comes from HF_TOKEN or from `hf auth login`.
"""

import contextlib
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from auditor.audit_folder.folder import StorageError

if TYPE_CHECKING:
    from huggingface_hub import HfApi

HUB = "hf://"
PAUSES = (1, 2, 4, 8, 16)  # seconds between attempts
TRANSIENT = (408, 429, 500, 502, 503, 504)
HUB_FILES = {"README.md", ".gitattributes"}  # of a new repository
REPLACED = ["*.tar", "*.parquet", "*.json"]  # the files of an earlier export
_COMMIT = re.compile(r"[0-9a-f]{40}")
T = TypeVar("T")


def connect_hub() -> "HfApi":
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.utils import disable_progress_bars
    except ImportError as error:
        raise StorageError("hf:// needs huggingface_hub: pip install 'pau-auditor[hub]'") from error
    disable_progress_bars()
    return HfApi()


def retry(call: Callable[[], T]) -> T:
    """Call again, with growing pauses, while the hub is busy or cannot be reached."""
    for pause in PAUSES:
        try:
            return call()
        except Exception as error:
            if not is_transient(error):
                raise
            headers = getattr(getattr(error, "response", None), "headers", {})
            wait = str(headers.get("Retry-After", ""))
            time.sleep(min(int(wait), 300) if wait.isdecimal() else pause)
    return call()


def is_transient(error: Exception) -> bool:
    response = getattr(error, "response", None)
    if response is None:
        return is_network_error(error)
    return response.status_code in TRANSIENT


def is_network_error(error: BaseException | None) -> bool:
    return type(error).__module__.startswith("httpx")


def parse_hub_url(url: str) -> Any:
    """Return the parts of a URL: type, id, revision, path_in_repo."""
    from huggingface_hub.utils import parse_hf_uri

    try:
        return parse_hf_uri(url)
    except ValueError as error:
        raise StorageError(f"{url}: write hf://datasets/ORG/NAME, with @REVISION and a path if needed") from error


@contextlib.contextmanager
def explain_hub_errors(url: str) -> Iterator[None]:
    """Replace the hub's refusals by one line that says what to do."""
    from huggingface_hub import errors

    try:
        yield
    except StorageError:
        raise
    except Exception as error:
        cause = error.__cause__ if isinstance(error, FileNotFoundError) else error
        status = getattr(getattr(cause, "response", None), "status_code", None)
        if isinstance(cause, errors.GatedRepoError):
            reason = "it is gated: accept its terms on its page and set HF_TOKEN to a token of your account"
        elif isinstance(cause, errors.RevisionNotFoundError):
            reason = "there is no such revision"
        elif isinstance(cause, errors.RepositoryNotFoundError):
            reason = "it does not exist or is private: check the name, or set HF_TOKEN to a token that has access"
        elif status in (401, 403):
            reason = "the token in HF_TOKEN is not valid, or has no right to this"
        elif status == 429:
            reason = "the hub limits the number of requests: wait some minutes, or set HF_TOKEN for a higher limit"
        elif is_network_error(cause) or isinstance(cause, errors.OfflineModeIsEnabled):
            reason = f"the hub cannot be reached: {cause}"
        elif status in TRANSIENT:
            reason = f"the hub answers with error {status}: run the same command again later"
        else:
            raise
        raise StorageError(f"{url}: {reason}") from error


def pin_revision(url: str) -> str:
    """Replace a branch by its present commit: a corpus must not change while it is read, and can be read again later.

    Raises StorageError if the repository is missing, private or gated.
    """
    if not url.startswith(HUB):
        return url
    api, parts = connect_hub(), parse_hub_url(url)
    if parts.is_bucket or _COMMIT.fullmatch(parts.revision or ""):
        return url
    with explain_hub_errors(url):
        info = retry(lambda: api.repo_info(parts.id, repo_type=parts.type, revision=parts.revision))
        if getattr(info, "gated", None):
            retry(lambda: api.auth_check(parts.id, repo_type=parts.type))
    kind = "" if parts.type == "model" else f"{parts.type}s/"
    return f"{HUB}{kind}{parts.id}@{info.sha}/{parts.path_in_repo}".rstrip("/")


@contextlib.contextmanager
def stage_upload(target: str, *, is_folder: bool, force: bool) -> Iterator[str]:
    """Yield a local path; what is written there becomes one commit at the target.

    Otherwise each file would be a commit, and the hub limits their number.
    """
    api, parts = connect_hub(), parse_hub_url(target)
    place = {"repo_id": parts.id, "repo_type": parts.type, "revision": parts.revision}
    path = parts.path_in_repo
    folder, _, name = (path, "", "") if is_folder else path.rpartition("/")
    with explain_hub_errors(target), tempfile.TemporaryDirectory(prefix="auditor-") as scratch:
        files = retry(lambda: api.list_repo_files(**place))
        old_files = [file for file in files if file == path or not path or file.startswith(f"{path}/")]
        if not force and not set(old_files) <= HUB_FILES:
            raise StorageError(f"{target} exists; --force replaces it")
        yield f"{scratch}/{name}".rstrip("/")
        upload = partial(api.upload_folder, folder_path=scratch, path_in_repo=folder, commit_message="auditor: export")
        retry(lambda: upload(delete_patterns=REPLACED if force and is_folder else None, **place))
