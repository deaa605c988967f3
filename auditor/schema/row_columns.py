"""What a row is: its identity, where the bytes of its medium are, and whether it can be used."""

from auditor.schema.column import Column
from auditor.schema.statuses import STATUSES

IDENTITY = (
    Column("uid", "string", "Uid", "identity of the row, 32 hex digits", unique=True, hexadecimal=True),
    Column("key", "string", "Key", "name of the sample in its shard", unique=True),
    Column(
        "caption_index",
        "int32",
        "Caption number",
        "which caption of the medium, from 0",
        in_memory=True,
        definition="a medium with five captions gives five rows and is encoded once",
    ),
    Column("shard", "string", "Shard", "name of the shard"),
    Column(
        "kind",
        "string",
        "Kind",
        "image or video; empty where there is no medium",
        in_memory=True,
        definition="what it decodes as, whatever its name says",
    ),
)

ORIGIN = (
    Column("media_path", "string", "File", "file or URL that holds the bytes of the medium"),
    Column("media_offset", "int64", "Offset", "where in that file they begin", unit="bytes", unique=True),
    Column("media_size", "int64", "Size", "how many there are", unit="bytes", unique=True),
    Column(
        "media_digest",
        "string",
        "Digest",
        "equal for media with the same bytes",
        unique=True,
        hexadecimal=True,
        definition="BLAKE2b-128 of the bytes, hex",
    ),
    Column(
        "status",
        "string",
        "Status",
        "whether the row can be used, and if not, why",
        in_memory=True,
        definition=", ".join(STATUSES),
    ),
    Column(
        "carried",
        "string",
        "Carried columns",
        "columns of the input that were carried into the audit, as JSON",
        unique=True,
        definition="named by `--carry`; each is a column of `samples` too, `input_NAME` where the name is taken",
    ),
    Column(
        "error_message",
        "string",
        "What was wrong",
        "why the row cannot be used; of one that can, what is not whole, such as a truncated video",
    ),
)
