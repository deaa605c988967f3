"""The columns of an audit: what the sweep knows of a row, what scoring adds, and their order on disk."""

from typing import Any

import pyarrow as pa

STATUSES = ("ok", "corrupt", "missing_media", "missing_caption", "timeout", "duplicate_key", "too_large")

# What the sweep finds out; the same in embeddings/ and samples/.
FACTS = pa.schema(
    [
        ("uid", pa.string()),
        ("key", pa.string()),
        ("caption_index", pa.int32()),
        ("shard", pa.string()),
        ("kind", pa.string()),  # image, video; null where there is no medium
        ("caption", pa.string()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("duration", pa.float32()),  # seconds; null for images
        ("frames", pa.int32()),  # frames encoded: 1 for an image
        ("media_path", pa.string()),
        ("media_offset", pa.int64()),
        ("media_size", pa.int64()),
        ("media_digest", pa.string()),  # blake2b-128 of the bytes, hex
        ("status", pa.string()),
        ("error_message", pa.string()),
    ]
)

# What scoring adds; null where status is not ok.
SCORES = pa.schema(
    [
        ("similarity", pa.float32()),
        ("similarity_normalised", pa.float32()),  # less half the log-mean-exp of both sides (hubness)
        ("uncertainty_visual", pa.float32()),
        ("uncertainty_text", pa.float32()),
        ("mean_similarity_visual", pa.float32()),
        ("mean_similarity_text", pa.float32()),
        ("matches_visual", pa.float32()),
        ("matches_text", pa.float32()),
        ("mismatch_score", pa.float32()),  # the statistic p_mismatch is computed from; low is suspicious
        ("p_mismatch", pa.float32()),
        ("best_frame", pa.int32()),  # video: which of the encoded frames fits the caption best
        ("best_frame_time", pa.float32()),  # seconds
        ("frame_spread", pa.float32()),  # standard deviation of the frame similarities
        ("frame_match_share", pa.float32()),  # share of frames that fit the caption
        ("duplicate_of", pa.string()),  # uid of the first of its group of duplicates; null for that first one
        ("topic", pa.int16()),  # cluster of the medium's embedding
    ]
)

SAMPLES = pa.schema([*FACTS, *SCORES])

# How pyarrow stores samples/: for queries that read a few columns of very many rows. A dictionary only where values
# repeat (in a column of uids it is a second copy), a codec that costs nothing to undo, and zstd where it halves hex.
_HEX = ("uid", "media_digest", "duplicate_of")
_UNIQUE = (*_HEX, "key", "caption", "media_offset", "media_size")
STORAGE: dict[str, Any] = {
    "use_dictionary": [f.name for f in SAMPLES if f.name not in _UNIQUE and f.type != pa.float32()],
    "compression": {column: "zstd" if column in _HEX else "lz4" for column in SAMPLES.names},
}
# Flags are not stored: auditor.query.rules derives them from the thresholds of the manifest.
FLAGS = ("mismatch", "ambiguous_visual", "ambiguous_text")


def embeddings(dim: int) -> pa.Schema:
    """Schema of embeddings/<shard>.parquet for a model of embedding width `dim`.

    A medium's `visual` and `frame_embeddings` stand in the row of its first caption and are null in the others.
    """
    vector = pa.list_(pa.float16(), dim)
    return pa.schema(
        [
            *FACTS,
            ("visual", vector),
            ("text", vector),
            ("frame_embeddings", pa.list_(vector)),
            ("frame_times", pa.list_(pa.float32())),
        ]
    )
