"""topics.json: the most typical captions of each topic, its name for people."""

from collections.abc import Sequence

from auditor.audit_folder.folder import Folder

FILE = "topics.json"


def write_topics(folder: Folder, captions: Sequence[Sequence[str]]) -> None:
    folder.write_json(FILE, {"captions": [list(some) for some in captions]})


def read_topics(folder: Folder) -> list[list[str]]:
    """Captions by topic; nothing where the audit is older than the file."""
    if not folder.exists(FILE):
        return []
    found: list[list[str]] = folder.read_json(FILE)["captions"]
    return found
