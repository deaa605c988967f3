"""Arrow schemas of samples/ and embeddings/, built from auditor/schema/, and how Parquet stores their columns."""

from typing import Any

import pyarrow as pa

from auditor.schema import COLUMNS
from auditor.schema import FACTS as FACT_NAMES
from auditor.schema import SCORES as SCORE_NAMES
from auditor.vectors import THUMBNAIL_SIDE

THUMBNAIL_BYTES = THUMBNAIL_SIDE**2


def get_arrow_type(column: str) -> pa.DataType:
    return pa.type_for_alias(COLUMNS[column].type)


FACTS = pa.schema([(name, get_arrow_type(name)) for name in FACT_NAMES])
SCORES = pa.schema([(name, get_arrow_type(name)) for name in SCORE_NAMES])
SAMPLES = pa.schema([*FACTS, *SCORES])

# How pyarrow stores samples/, for queries that read a few columns of very many rows: dictionaries only if values repeat
# (of uids, a dictionary is a second copy), a codec that decompresses fast, and zstd for hex digits, which it halves.
STORAGE: dict[str, Any] = {
    "use_dictionary": [name for name in SAMPLES.names if not COLUMNS[name].unique and COLUMNS[name].type != "float32"],
    "compression": {name: "zstd" if COLUMNS[name].hexadecimal else "lz4" for name in SAMPLES.names},
}
# How pyarrow stores embeddings/: facts as in samples/, vectors plain. float16 hardly compresses, and a dictionary of
# its values makes writing three times and reading five times as slow.
EMBEDDINGS_STORAGE: dict[str, Any] = {
    "use_dictionary": [name for name in STORAGE["use_dictionary"] if name in FACT_NAMES],
    "compression": {name: codec for name, codec in STORAGE["compression"].items() if name in FACT_NAMES},
    "write_statistics": list(FACT_NAMES),
}


VECTORS = pa.schema([(side, pa.list_(pa.float16(), 1)) for side in ("visual", "text")])  # of any width
ENCODED = pa.schema([*FACTS, *VECTORS])  # the columns that embeddings/<shard>.parquet and reference.parquet must have


def find_type_error(name: str, stored: pa.Schema, expected: pa.Schema | None = None) -> str:
    """Describe the first column that has another type, or that is `expected` and missing, or return "".

    The types of tables with rows of the audit are always checked.
    """
    if absent := next((field.name for field in expected or () if field.name not in stored.names), None):
        return f"it has no column {absent}"
    has_rows = name.split("/")[0] in ("samples", "embeddings", "reference.parquet")
    types = {field.name: field.type for field in (*((*SAMPLES, *VECTORS) if has_rows else ()), *(expected or ()))}
    for field in stored:
        if field.name in types and not _has_same_type(field.type, types[field.name]):
            return f"its column {field.name} has the type {str(field.type)[:60]}"
    return ""


def _has_same_type(stored: pa.DataType, expected: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(expected):
        return bool(pa.types.is_fixed_size_list(stored) and stored.value_type == expected.value_type)
    return bool(stored == expected)


def build_embeddings_schema(dim: int) -> pa.Schema:
    """Build the schema of embeddings/<shard>.parquet for a model of embedding width `dim`.

    The row of a medium's first caption holds its `visual` and `frame_embeddings`; they are null in the other rows. A
    span of a video is a medium of its own. The row of the video's first caption holds the frames around its spans.
    `thumbnail` holds 32 x 32 gray levels of a picture or of the middle frame of a video; a span has none.
    `part_embeddings` holds the vectors of the parts of a caption, and is null if it has only one.
    """
    vector = pa.list_(pa.float16(), dim)
    return pa.schema(
        [
            *FACTS,
            ("visual", vector),
            ("text", vector),
            ("frame_embeddings", pa.list_(vector)),
            ("frame_times", pa.list_(pa.float32())),
            ("context_embeddings", pa.list_(vector)),
            ("context_times", pa.list_(pa.float32())),
            ("thumbnail", pa.binary(THUMBNAIL_BYTES)),
            ("part_embeddings", pa.list_(vector)),
        ]
    )
