"""The columns of auditor/schema/ as Arrow schemas: of samples/, of embeddings/, and how Parquet stores them."""

from typing import Any

import pyarrow as pa

from auditor.schema import COLUMNS
from auditor.schema import FACTS as FACT_NAMES
from auditor.schema import SCORES as SCORE_NAMES


def arrow_type(column: str) -> pa.DataType:
    return pa.type_for_alias(COLUMNS[column].type)


FACTS = pa.schema([(name, arrow_type(name)) for name in FACT_NAMES])
SCORES = pa.schema([(name, arrow_type(name)) for name in SCORE_NAMES])
SAMPLES = pa.schema([*FACTS, *SCORES])

# How pyarrow stores samples/: for queries that read a few columns of very many rows. A dictionary only where values
# repeat (in a column of uids it is a second copy), a codec that costs nothing to undo, and zstd where it halves hex.
STORAGE: dict[str, Any] = {
    "use_dictionary": [name for name in SAMPLES.names if not COLUMNS[name].unique and COLUMNS[name].type != "float32"],
    "compression": {name: "zstd" if COLUMNS[name].hexadecimal else "lz4" for name in SAMPLES.names},
}
# How it stores embeddings/: facts as in samples/, vectors as they are. float16 hardly shrinks, and a dictionary of its
# numbers makes writing three times and reading five times as slow.
EMBEDDINGS_STORAGE: dict[str, Any] = {
    "use_dictionary": [name for name in STORAGE["use_dictionary"] if name in FACT_NAMES],
    "compression": {name: codec for name, codec in STORAGE["compression"].items() if name in FACT_NAMES},
    "write_statistics": list(FACT_NAMES),
}


def embeddings(dim: int) -> pa.Schema:
    """Schema of embeddings/<shard>.parquet for a model of embedding width `dim`.

    A medium's `visual` and `frame_embeddings` stand in the row of its first caption and are null in the others; a span
    of a video is a medium of its own. Frames around spans stand in the row of the video's first caption.
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
        ]
    )
