"""The vocabulary of a corpus: words counted in a bounded sample of captions, encoded once, and stored in the audit.

`words.parquet` holds each word's vector and the fingerprint of the model that encoded it, so that scoring again needs
no text encoder. With another model, or without one, there is no word evidence, and the audit reports that.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from auditor.audit_folder import embeddings as stored
from auditor.audit_folder.embeddings import name_embeddings_file
from auditor.audit_folder.folder import Folder
from auditor.score.pair_sample import ShardCounts
from auditor.score.statistics.word_evidence import Vocabulary, encode_words
from auditor.vectors import Floats
from auditor.workers.process_pool import SERIAL, Engine

FILE = "words.parquet"
CAPTIONS = 200_000  # upper limit on the captions in which words are counted
EncodeText = Callable[[Sequence[str]], Floats]


def draw_captions(
    folder: Folder, counts: Sequence[ShardCounts], seed: int, engine: Engine = SERIAL, at_most: int = CAPTIONS
) -> list[str]:
    """Random captions of usable pairs; each shard contributes in proportion to its size."""
    total = sum(sum(count.pairs.values()) for count in counts)
    share = min(1.0, at_most / max(1, total))
    shards = [count.shard for count in counts]
    parts = engine.each(partial(_draw_shard_captions, folder, share, seed), list(enumerate(shards)))
    return [caption for part in parts for caption in part]


def _draw_shard_captions(folder: Folder, share: float, seed: int, shard: tuple[int, str]) -> list[str]:
    number, name = shard
    table = folder.read_table(name_embeddings_file(name), ["caption", "status"])
    usable = [
        caption
        for caption, status in zip(*(column.to_pylist() for column in table.columns), strict=True)
        if status == "ok" and caption
    ]
    count = round(share * len(usable))
    if count >= len(usable):
        return usable
    return [usable[i] for i in np.random.default_rng([seed, number]).choice(len(usable), count, replace=False)]


def load_vocabulary(
    folder: Folder, words: Sequence[str], model: str, encode: EncodeText | None, *, keep: bool = True
) -> Vocabulary | None:
    """The vectors of these words, from the audit or encoded now; None if neither is possible."""
    vectors_by_word = _read_vocabulary(folder, model)
    missing = [word for word in words if word not in vectors_by_word]
    if missing and encode is None:
        words = [word for word in words if word in vectors_by_word]
    elif missing and encode is not None:
        encoded = encode_words(missing, encode)
        vectors_by_word |= dict(zip(encoded.names, encoded.vectors, strict=True))
    if not words:
        return None
    vectors = np.stack([vectors_by_word[word] for word in words]).astype(np.float16).astype(np.float32)
    if missing and encode is not None and keep:
        valid = np.ones(len(words), dtype=bool)
        columns = {"word": pa.array(words, pa.string()), "vector": stored.build_nullable_vectors(vectors, valid)}
        folder.write_table(FILE, pa.table(columns), {"model": model})
    return Vocabulary(tuple(words), vectors)


def _read_vocabulary(folder: Folder, model: str) -> dict[str, Floats]:
    if not folder.exists(FILE) or folder.table_metadata(FILE).get("model") != model:
        return {}
    table = folder.read_table(FILE)
    rows = zip(table["word"].to_pylist(), table["vector"].to_pylist(), strict=True)
    return {word: np.asarray(vector, np.float32) for word, vector in rows}
