"""The vocabulary of a corpus: words counted in a bounded sample of captions, encoded once, and stored in the audit.

`words.parquet` holds each word's vector and the fingerprint of the model that encoded it, so that scoring again needs
no text encoder. With another model, or without one, there is no word evidence, and the audit reports that.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
    vectors_by_word = _read_vocabulary(folder, model)
    missing = [word for word in words if word not in vectors_by_word] if encode is not None else []
    if missing and encode is not None:
        vectors_by_word |= dict(zip(missing, encode_words(missing, encode).vectors, strict=True))
    names = tuple(word for word in words if word in vectors_by_word)
    if not names:
        return None
    halves = np.stack([vectors_by_word[word] for word in names]).astype(np.float16)
    if missing and keep:
        column = stored.build_vector_column(halves, np.ones(len(names), bool))
        folder.write_table(FILE, pa.table({"word": pa.array(names, pa.string()), "vector": column}), {"model": model})
    return Vocabulary(names, halves.astype(np.float32))


def _read_vocabulary(folder: Folder, model: str) -> dict[str, Floats]:
    if not folder.exists(FILE) or folder.table_metadata(FILE).get("model") != model:
        return {}
    table = folder.read_table(FILE)
    rows = zip(table["word"].to_pylist(), table["vector"].to_pylist(), strict=True)
    return {word: np.asarray(vector, np.float32) for word, vector in rows}
