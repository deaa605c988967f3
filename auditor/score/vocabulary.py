"""The words of a corpus: counted in a bounded sample of its captions, encoded once, and kept with the audit.

`words.parquet` holds each word's vector and the fingerprint of the model that made it, so that scoring again needs no
text tower; with another model, or without any, words are not looked at and the audit says so.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from auditor.audit_folder import embeddings as stored
from auditor.audit_folder.embeddings import file_name
from auditor.audit_folder.folder import Folder
from auditor.score.pair_sample import Each, ShardCounts, in_turn
from auditor.score.statistics.word_evidence import Vocabulary, encode_words
from auditor.vectors import Floats

NAME = "words.parquet"
CAPTIONS = 200_000  # at most, from which words are counted
Encode = Callable[[Sequence[str]], Floats]


def draw_captions(
    folder: Folder, counts: Sequence[ShardCounts], seed: int, each: Each = in_turn, at_most: int = CAPTIONS
) -> list[str]:
    """Random captions of usable pairs, as many from each shard as it has a share of the corpus."""
    everything = sum(sum(one.pairs.values()) for one in counts)
    share = min(1.0, at_most / max(1, everything))
    shards = [one.shard for one in counts]
    parts = each(partial(_captions, folder, share, seed), list(enumerate(shards)))
    return [caption for part in parts for caption in part]


def _captions(folder: Folder, share: float, seed: int, shard: tuple[int, str]) -> list[str]:
    number, name = shard
    table = folder.read_table(file_name(name), ["caption", "status"])
    usable = [
        caption
        for caption, status in zip(*(column.to_pylist() for column in table.columns), strict=True)
        if status == "ok" and caption
    ]
    count = round(share * len(usable))
    if count >= len(usable):
        return usable
    return [usable[i] for i in np.random.default_rng([seed, number]).choice(len(usable), count, replace=False)]


def vocabulary_of(
    folder: Folder, words: Sequence[str], model: str, encode: Encode | None, *, keep: bool = True
) -> Vocabulary | None:
    """The vectors of these words: those kept with the audit, and the others encoded; None where there is no way."""
    known = _kept(folder, model)
    missing = [word for word in words if word not in known]
    if missing and encode is None:
        words = [word for word in words if word in known]
    elif missing and encode is not None:
        fresh = encode_words(missing, encode)
        known |= dict(zip(fresh.names, fresh.vectors, strict=True))
    if not words:
        return None
    vectors = np.stack([known[word] for word in words]).astype(np.float16).astype(np.float32)
    if missing and encode is not None and keep:
        everywhere = np.ones(len(words), dtype=bool)
        table = pa.table({"word": pa.array(words, pa.string()), "vector": stored.vectors(vectors, everywhere)})
        folder.write_table(NAME, table, {"model": model})
    return Vocabulary(tuple(words), vectors)


def _kept(folder: Folder, model: str) -> dict[str, Floats]:
    if not folder.exists(NAME) or folder.table_metadata(NAME).get("model") != model:
        return {}
    table = folder.read_table(NAME)
    vectors = table["vector"].to_pylist()
    return {word: np.asarray(one, np.float32) for word, one in zip(table["word"].to_pylist(), vectors, strict=True)}
