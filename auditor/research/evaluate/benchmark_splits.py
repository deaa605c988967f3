"""Reads the splits of a benchmark for retrieval: sweeps their shards as an audit does, then reads the embeddings.

Each split gets a folder of its own with embeddings/<shard>.parquet, which a later run reads instead of encoding again.
An audit stores float16 vectors. They are normalized again in float32, so recall differs from that of float32 vectors
only for scores that are nearly equal.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditor.audit_folder.embeddings import read_embeddings
from auditor.audit_folder.folder import Folder
from auditor.corpus.open_corpus import CorpusError, Shard, open_corpus
from auditor.errors import AuditorError
from auditor.research.retrieval.protocols import mask_first_captions
from auditor.research.retrieval.recall import Array, EmbeddingSet
from auditor.run.audit_config import AuditConfig
from auditor.run.run_audit import MakeEngine, make_local_engine
from auditor.sweep.sweep_config import SweepConfig
from auditor.vectors import MediaVectors, concatenate_media, normalize_rows
from model.backbone import Backbone

Strings = npt.NDArray[np.str_]


class EvaluationError(AuditorError):
    """A benchmark that cannot be evaluated with these options."""


@dataclass(frozen=True, slots=True)
class ShardEmbeddings:
    """The media and captions of one shard that could be encoded."""

    keys: Strings  # (n,)
    captions: Strings  # (m,)
    owners: Array  # (m,) index of each caption's medium
    media: MediaVectors  # n of them
    text: Array  # (m, D)
    failed: list[str]  # key and reason for each medium that could not be encoded


@dataclass(frozen=True)
class BenchmarkSplit:
    name: str
    keys: Strings
    captions: Strings
    data: EmbeddingSet
    failed: list[str]


SweepSplit = Callable[[str, Sequence[Shard]], Iterator[ShardEmbeddings]]  # yields the shards of a split in order


def find_split_shards(data: str, split: str) -> list[Shard]:
    """The shards of a split: `DATA/test-*.tar` as `auditor pack` writes them, or `DATA/test/*.tar` (CLIP_benchmark)."""
    root = data.rstrip("/")
    patterns = [f"{root}/{split}-*.tar", f"{root}/{split}/*.tar", f"{root}/{split}.tar"]
    for pattern in patterns:
        try:
            return list(open_corpus(pattern).shards)
        except CorpusError:
            continue
    raise EvaluationError(f"{data} has no shards of the split {split!r} (looked for {', '.join(patterns)})")


def make_audit_config(data: str, root: str, model: str, frames: int, decoders: int, device: str = "cpu") -> AuditConfig:
    """Settings of the sweep: exact pixels, because published figures are measured with open_clip's own transform."""
    sweep = SweepConfig(frames=frames, exact_pixels=True, context=0.0, decoders=decoders)
    return AuditConfig(data, root, model, sweep=sweep, device=device)


@dataclass(frozen=True)
class SplitSweeper:
    """Sweeps the shards of a split into a folder of its own below `config.out` and yields their embeddings."""

    backbone: Backbone
    config: AuditConfig
    make_engine: MakeEngine = make_local_engine

    def __call__(self, split: str, shards: Sequence[Shard]) -> Iterator[ShardEmbeddings]:
        """Yields the shards in their order, as soon as they are swept; a caller may stop early."""
        model = f"{self.backbone.fingerprint[:16]}-{self.config.sweep.frames}-frames"
        folder = Folder(f"{self.config.out}/{model}/{split}")
        reports = iter(self.make_engine(folder, self.backbone, self.config).sweep(shards, lambda rows, errors: None))
        swept: set[str] = set()
        for shard in shards:
            while shard.name not in swept:  # an engine reports shards in any order
                report = next(reports)
                if report.failure is not None:
                    raise EvaluationError(f"shard {report.shard} cannot be encoded: {report.failure}")
                swept.add(report.shard)
            yield read_shard_embeddings(folder, shard.name)


def read_shard_embeddings(folder: Folder, shard: str) -> ShardEmbeddings:
    """The embeddings of a swept shard. A span of a video is a medium of its own."""
    embeddings = read_embeddings(folder, shard)
    pairs = embeddings.facts.take(pa.array(embeddings.rows))
    vectors = embeddings.media
    frames = None if vectors.frames is None else normalize_rows(vectors.frames)
    first_rows = np.unique(embeddings.media_index, return_index=True)[1]
    media = pairs.select(["key", "start", "end"]).take(pa.array(first_rows)).to_pylist()
    return ShardEmbeddings(
        keys=np.array([format_media_key(**row) for row in media], dtype=np.str_),
        captions=np.array(pairs.column("caption").to_pylist(), dtype=np.str_),
        owners=embeddings.media_index,
        media=MediaVectors(normalize_rows(vectors.visual), frames, vectors.mask),
        text=normalize_rows(embeddings.text),
        failed=list_failed_media(embeddings.facts),
    )


def format_media_key(key: str, start: float | None, end: float | None) -> str:
    return key if start is None else f"{key}@{start:.10g}-{end:.10g}"


def list_failed_media(facts: pa.Table) -> list[str]:
    """Key and reason for each medium that could not be encoded; the rows of its captions follow one another."""
    failed: list[str] = []
    previous_span: tuple[float | None, float | None] | None = None
    for row in facts.select(["caption_index", "status", "error_message", "key", "start", "end"]).to_pylist():
        span = row["start"], row["end"]
        if row["status"] != "ok" and (row["caption_index"] == 0 or span != previous_span):
            failed.append(f"{format_media_key(row['key'], *span)}: {row['error_message']}")
        previous_span = span
    return failed


def join_shards(
    name: str, shards: Sequence[ShardEmbeddings], captions: int | None, media: int | None = None
) -> BenchmarkSplit:
    """One split of the first `captions` captions of each of the first `media` media; None: all."""
    if not any(len(shard.keys) for shard in shards):
        raise EvaluationError(f"nothing of the split {name!r} could be encoded")
    vectors = concatenate_media([shard.media for shard in shards])
    offsets = np.cumsum([0, *(len(shard.keys) for shard in shards)])
    owners = np.concatenate([shard.owners + start for shard, start in zip(shards, offsets, strict=False)])
    limit = len(vectors) if media is None else media
    selected = mask_first_captions(owners, captions) & (owners < limit)
    vectors = vectors.take(slice(limit))
    text = np.concatenate([shard.text for shard in shards])[selected]
    return BenchmarkSplit(
        name=name,
        keys=np.concatenate([shard.keys for shard in shards])[:limit],
        captions=np.concatenate([shard.captions for shard in shards])[selected],
        data=EmbeddingSet(vectors, text, np.arange(len(vectors)), owners[selected]),
        failed=[line for shard in shards for line in shard.failed],
    )


def check_failed_share(split: BenchmarkSplit, max_failed: float) -> None:
    total = len(split.keys) + len(split.failed)
    if len(split.failed) > max_failed * total:
        raise EvaluationError(
            f"{len(split.failed)} of {total} media of {split.name} cannot be used (allowed {max_failed:.1%}), such as "
            f"{split.failed[0]}; recall on the rest would not be the benchmark's (--max-failed)"
        )
