"""Samples of a corpus: random keys of random shards are swept first; the others follow without sweeping those again."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import numpy as np

from auditor.audit_folder.embeddings import name_embeddings_file
from auditor.audit_folder.folder import Folder
from auditor.corpus.corpus_files import digest
from auditor.corpus.shard import Corpus, OpenShard, Shard
from auditor.errors import AuditorError

SHARDS = 30  # of a sample, or more if they are small
MARK = " sample "  # in the fingerprint of a sample, before seed and fraction


@dataclass(frozen=True, slots=True)
class ShardPart:
    """A random fraction of the samples of a shard, or the `complement` of it."""

    shard: Shard
    seed: int
    fraction: float
    complement: bool = False

    @property
    def name(self) -> str:
        return self.shard.name

    def fingerprint(self) -> str:
        return self.shard.fingerprint() + ("" if self.complement else f"{MARK}{self.seed} {self.fraction!r}")

    @contextmanager
    def open(self) -> Iterator[OpenShard]:
        with self.shard.open() as opened:
            choices = [self.draws(sample.key) for sample in opened.samples]
            samples = [
                sample
                for sample, is_chosen in zip(opened.samples, choices, strict=True)
                if is_chosen != self.complement
            ]
            rows = [max(1, len(sample.captions)) for sample in opened.samples]
            yield replace(opened, samples=samples, old_row_mask=np.repeat(choices, rows) if self.complement else None)

    def draws(self, key: str) -> bool:
        number = int(digest(f"{self.seed} {self.name} {key}".encode(errors="replace"))[:8], 16)
        return number < self.fraction * 2**32


def draw_shards(corpus: Corpus, limit: int, seed: int) -> tuple[Corpus, dict[str, float]]:
    """Return about `limit` keys of random shards, and their record in the manifest; counts the keys of one shard."""
    order = np.random.default_rng(seed).permutation(len(corpus.shards)).tolist()
    with corpus.shards[order[0]].open() as opened:
        size = max(1, len(opened.samples))
    count = min(len(order), max(SHARDS, -(-limit // size)))
    fraction = min(1.0, limit / size / count)
    shards = [ShardPart(corpus.shards[number], seed, fraction) for number in order[:count]]
    return replace(corpus, shards=shards), {"seed": seed, "fraction": fraction, "of_shards": len(order)}


def skip_swept_samples(folder: Folder, shard: Shard, settings: str) -> Shard:
    """Return the rest of a shard if its file in the audit holds a sample of the same content, else the shard."""
    if isinstance(shard, ShardPart) and shard.complement:  # it has changed
        shard = shard.shard
    name = name_embeddings_file(shard.name)
    metadata = folder.table_metadata(name)
    content, _, sample = metadata.get("fingerprint", "").partition(MARK)
    with suppress(AuditorError, OSError):  # opening the shard reports it
        if sample and metadata["settings"] == settings and content == shard.fingerprint() and folder.is_sound(name):
            seed, fraction = sample.split()
            return ShardPart(shard, int(seed), float(fraction), complement=True)
    return shard
