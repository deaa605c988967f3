"""overlap/<name>.parquet: what of an audit's corpus is also in another corpus; written by `auditor overlap`."""

import re

import pyarrow as pa
import pyarrow.compute as pc

from auditor.audit_folder.folder import Folder
from auditor.errors import AuditError

SCHEMA = pa.schema(
    [
        ("uid", pa.string()),  # of the row; of a medium's first row where the medium matches
        ("key", pa.string()),
        ("shard", pa.string()),
        ("media_digest", pa.string()),
        ("what", pa.string()),  # media, caption
        ("how", pa.string()),  # exact, near
        ("cosine", pa.float32()),
        ("other_key", pa.string()),
        ("other_caption", pa.string()),
    ]
)


def overlap_name(other: str) -> str:
    """The file for another corpus, by the name it is given on the command line."""
    return f"overlap/{re.sub(r'[^A-Za-z0-9.-]+', '_', other.rstrip('/')).strip('_')[-120:]}.parquet"


def overlapping_digests(folder: Folder, other: str) -> list[str]:
    """Digests of the media that are also in the other corpus."""
    name = overlap_name(other)
    if not folder.exists(name):
        raise AuditError(f"{folder.url} has not been compared with {other}: run `auditor overlap {folder.url} {other}`")
    table = folder.read_table(name, ["media_digest", "what"])
    found: list[str] = pc.unique(table.filter(pc.equal(table["what"], "media"))["media_digest"]).to_pylist()
    return found
