"""Where an audit may be written, and what to do when it was stopped on the way."""

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.lock import REMOTE_LOCK
from auditor.audit_folder.manifest import NAME
from auditor.corpus.corpus_spec import folder_around
from auditor.errors import AuditError


def check_place(folder: Folder, corpus: str, *, force: bool = False) -> None:
    """Refuse a folder in the corpus, which the next audit would read as data, and one that others have files in."""
    if around := folder_around(corpus, folder.url):
        raise AuditError(f"--out {folder.url} lies in the corpus {around}, which would then hold its own audit: "
                         "choose a folder outside of it")  # fmt: skip
    if force or folder.exists(NAME):
        return
    if others := sorted(name for name in folder.entries() if not name.startswith((".", REMOTE_LOCK))):
        raise AuditError(
            f"{folder.url} is not an audit and has other files in it, such as {others[0]}: choose a folder of its own, "
            "or write beside them with --force"
        )


def how_to_resume(folder: Folder, shards: int) -> str:
    """After Ctrl-C: what is done, and that the same command goes on from there."""
    done = len(folder.names("embeddings", ".parquet"))
    return f"{done:,} of {shards:,} shards are swept and stay so: the same command again goes on from there"
