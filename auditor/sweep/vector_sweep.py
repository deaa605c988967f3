"""Sweeps a corpus of stored embeddings: no decoder, no encoder, but the same files and reports as any sweep."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from auditor.audit_folder.extra_columns import CARRIED, ColumnSource, cast_columns, publish_source
from auditor.audit_folder.folder import Folder
from auditor.corpus.corpus_files import digest
from auditor.corpus.shard import Corpus, Shard, ShardError
from auditor.corpus.stored.vector_shard import OpenVectors, VectorShard
from auditor.errors import AuditorError
from auditor.sweep.corpus_model import fingerprint_sweep
from auditor.sweep.embeddings_writer import CHANGED, READINGS, EmbeddingsFile
from auditor.sweep.sweep_config import SweepConfig
from auditor.sweep.sweep_events import ShardReport, ShardStart, Watch
from auditor.sweep.vector_rows import build_stretch_table, read_row_texts


@dataclass(frozen=True, slots=True)
class StoredModel:
    """The record of the model that made stored embeddings: name, width and logit scale."""

    origin: str  # the names of the vectors in their files
    dim: int
    logit_scale: float

    @property
    def fingerprint(self) -> str:
        return digest(json.dumps(["stored", self.origin, self.dim]).encode())

    @property
    def encodes_media(self) -> bool:
        return False

    def describe(self) -> dict[str, Any]:
        """The model's entries in the manifest; `spec` is empty because only the vectors are available."""
        identity = {"spec": "", "fingerprint": self.fingerprint, **asdict(self)}
        return {**identity, "pixels": None, "frames": 1, "exact_pixels": True, "precision": "float32"}


def find_stored_model(corpus: Corpus, logit_scale: float) -> StoredModel | None:
    shard = next(iter(corpus.shards), None)
    if not isinstance(shard, VectorShard):
        return None
    names = [place.column_name for place in (shard.visual, *shard.texts)]
    return StoredModel("/".join(names), shard.dim, logit_scale)


def count_stored_bytes(shards: Iterable[Shard]) -> int:
    """The bytes of the shards' files on this machine; remote files count as zero."""
    files = {path for shard in shards if isinstance(shard, VectorShard) for path in shard.files}
    return sum(os.path.getsize(path) for path in files if os.path.isfile(path))


def list_carried_names(corpus: Corpus) -> list[str]:
    """The columns of stored embeddings that are carried into their audit."""
    shard = next(iter(corpus.shards), None)
    return [name for name, _ in shard.carried] if isinstance(shard, VectorShard) else []


def publish_carried_columns(folder: Folder, corpus: Corpus) -> None:
    shard = next(iter(corpus.shards), None)
    if isinstance(shard, VectorShard) and shard.carried:
        publish_source(folder, ColumnSource(CARRIED, dict(shard.carried), {"from": corpus.spec}))


def sweep_vectors(model: StoredModel, folder: Folder, shard: Shard) -> ShardReport:
    return next(VectorSweeper(model, folder).sweep([shard]))


class VectorSweeper:
    """Writes the embeddings files of shards of stored embeddings."""

    def __init__(self, model: StoredModel, folder: Folder):
        self.model, self.folder = model, folder
        self.settings = fingerprint_sweep(model, SweepConfig())

    def __enter__(self) -> "VectorSweeper":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def sweep(self, shards: Iterable[Shard], watch: Watch = lambda rows, errors: None) -> Iterator[ShardReport]:
        for shard in shards:
            try:
                yield self._sweep(shard, watch)
            except (AuditorError, OSError, pa.ArrowException) as error:
                yield ShardReport(shard.name, failure=error.reason if isinstance(error, ShardError) else str(error))

    def _sweep(self, shard: Shard, watch: Watch) -> ShardReport:
        """Sweep a shard, again if its files change meanwhile; a shard that keeps changing fails."""
        assert isinstance(shard, VectorShard)  # a corpus is of one kind
        for _ in range(READINGS):
            fingerprint = shard.fingerprint()
            with shard.open_vectors() as opened:
                own_uids = shard.roles.uid is not None
                start = ShardStart(shard.name, fingerprint, opened.table.num_rows, (), own_uids)
                file = EmbeddingsFile(self.folder, start, shard.dim, self.settings)
                try:
                    self._fill(file, shard, opened, watch)
                    if shard.fingerprint() == fingerprint:
                        return file.publish()
                finally:
                    file.discard()  # no effect after `publish`
        return ShardReport(shard.name, failure=CHANGED)

    def _fill(self, file: EmbeddingsFile, shard: VectorShard, opened: OpenVectors, watch: Watch) -> None:
        texts = read_row_texts(opened.table, shard.roles, shard.start)
        for stretch in opened.stretches:
            table = build_stretch_table(file.schema, shard, opened.table, texts, stretch)
            file.write(table, len(stretch.visual.widths), watch)
        if shard.carried:
            file.carried = cast_columns(opened.table.take(texts.rows), shard.carried)
