"""The vocabulary of a corpus: words counted in a bounded sample of captions, encoded once, and stored in the audit.

`words.parquet` holds each word's vector and the fingerprint of the model that encoded it, so that scoring again needs
no text encoder. With another model, or without one, there is no word evidence, and the audit reports that.
`examples.parquet` holds the example captions in the same way.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditor.audit_folder import embeddings as stored
from auditor.audit_folder.embeddings import name_embeddings_file
from auditor.audit_folder.folder import Folder, StorageError
from auditor.score.example_captions import group_examples
from auditor.score.pair_sample import ShardCounts
from auditor.score.statistics.word_evidence import Vocabulary, encode_words
from auditor.vectors import Floats
from auditor.workers.process_pool import SERIAL, Engine

FILE = "words.parquet"
SCHEMA = pa.schema([("word", pa.string()), ("vector", pa.list_(pa.float16(), 1))])
EXAMPLES = "examples.parquet"
CAPTIONS = 200_000  # upper limit on the captions in which words are counted
EncodeText = Callable[[Sequence[str]], Floats]


def draw_captions(
    folder: Folder, counts: Sequence[ShardCounts], seed: int, engine: Engine = SERIAL, at_most: int = CAPTIONS
) -> list[str]:
    """Random captions of usable pairs; each shard contributes in proportion to its size."""
    share = min(1.0, at_most / max(1, sum(count.pairs.total() for count in counts)))
    shards = list(enumerate(count.shard for count in counts))
    parts = engine.each(partial(_draw_shard_captions, folder, share, seed), shards)
    return [caption for part in parts for caption in part]


def _draw_shard_captions(folder: Folder, share: float, seed: int, shard: tuple[int, str]) -> list[str]:
    number, name = shard
    table = folder.read_table(name_embeddings_file(name), ["caption", "status"])
    usable = list(filter(None, table.filter(pc.equal(table["status"], "ok"))["caption"].to_pylist()))
    count = round(share * len(usable))
    if count >= len(usable):
        return usable
    return [usable[i] for i in np.random.default_rng([seed, number]).choice(len(usable), count, replace=False)]


def load_vocabulary(
    folder: Folder, words: Sequence[str], model: str, encode: EncodeText | None, *, keep: bool = True
) -> Vocabulary | None:
    """The vectors of these words, from the audit or encoded now; None if neither is possible."""

    def encode_alone(names: Sequence[str]) -> Floats:
        assert encode is not None
        return encode_words(names, encode).vectors

    vectors = _load_vectors(folder, FILE, words, model, encode and encode_alone, keep=keep)
    return Vocabulary(tuple(vectors), np.stack(list(vectors.values()))) if vectors else None


def load_examples(folder: Folder, model: str, encode: EncodeText | None, *, keep: bool = True) -> dict[str, Floats]:
    """The vectors of the example captions, from the audit or encoded now; empty if neither is possible."""
    captions = [caption for group in group_examples().values() for caption in group]
    vectors = _load_vectors(folder, EXAMPLES, captions, model, encode, keep=keep)
    return vectors if len(vectors) == len(set(captions)) else {}


def _load_vectors(
    folder: Folder, file: str, texts: Sequence[str], model: str, encode: EncodeText | None, *, keep: bool
) -> dict[str, Floats]:
    """The vectors of those texts that are in the file of this model, or can be encoded now."""
    stored_vectors = _read_vectors(folder, file, model)
    missing = [text for text in dict.fromkeys(texts) if text not in stored_vectors] if encode is not None else []
    if missing and encode is not None:
        stored_vectors |= dict(zip(missing, np.asarray(encode(missing)).astype(np.float16), strict=True))
    vectors = {text: stored_vectors[text] for text in texts if text in stored_vectors}
    if missing and keep:
        column = stored.build_vector_column(np.stack(list(vectors.values())), np.ones(len(vectors), bool))
        folder.write_table(file, pa.table({"word": pa.array(vectors, pa.string()), "vector": column}), {"model": model})
    return {text: vector.astype(np.float32) for text, vector in vectors.items()}


def _read_vectors(folder: Folder, file: str, model: str) -> dict[str, Floats]:
    if not folder.exists(file) or folder.table_metadata(file).get("model") != model:
        return {}
    try:
        table = folder.read_table(file, schema=SCHEMA)
    except StorageError:  # damaged: they are encoded again
        return {}
    rows = zip(table["word"].to_pylist(), table["vector"].to_pylist(), strict=True)
    return {word: np.asarray(vector, np.float16) for word, vector in rows}
