"""The sweep of a corpus whose embeddings are stored already: no decoder, no encoder, the same files and reports."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from auditor.audit_folder.extra_columns import CARRIED, Source, cast_columns, publish
from auditor.audit_folder.folder import Folder
from auditor.corpus.shard import Corpus, Shard, ShardError
from auditor.corpus.stored.npy_matrix import MatrixPlace
from auditor.corpus.stored.vector_shard import OpenVectors, Stretch, VectorShard
from auditor.errors import AuditorError
from auditor.sweep.embeddings_writer import CHANGED, READINGS, Begin, EmbeddingsFile, ShardReport, Watch
from auditor.sweep.sample_rows import digest
from auditor.sweep.vector_rows import Named, check_vectors, name_rows, piece_table, usable_vectors

LOGIT_SCALE = 100.0  # CLIP's, at the end of its training


@dataclass(frozen=True, slots=True)
class StoredModel:
    """What stands in for a backbone where the embeddings came from elsewhere: their name, width and scale."""

    origin: str  # what the vectors are called where they were found
    dim: int
    logit_scale: float

    @property
    def fingerprint(self) -> str:
        return digest(json.dumps(["stored", self.origin, self.dim]).encode())


def stored_model(corpus: Corpus, logit_scale: float) -> StoredModel | None:
    """Of a corpus of stored embeddings; None where the corpus has media."""
    shard = next(iter(corpus.shards), None)
    if not isinstance(shard, VectorShard):
        return None
    names = [
        place.member or "npy" if isinstance(place, MatrixPlace) else place.column
        for place in (shard.visual, shard.text)
    ]
    return StoredModel("/".join(names), shard.dim, logit_scale)


def stored_bytes(shards: Iterable[Shard]) -> int:
    """How much there is to read of shards of stored embeddings on this machine; what lies elsewhere is not counted."""
    files = {path for shard in shards if isinstance(shard, VectorShard) for path in shard.files}
    return sum(os.path.getsize(path) for path in files if os.path.isfile(path))


def publish_carried(folder: Folder, corpus: Corpus) -> None:
    """Make the columns that the shards carry visible."""
    shard = next(iter(corpus.shards), None)
    if isinstance(shard, VectorShard) and shard.carried:
        publish(folder, Source(CARRIED, dict(shard.carried), {"from": corpus.spec}))


class VectorSweeper:
    """Writes the embeddings files of shards of stored embeddings."""

    def __init__(self, model: StoredModel, folder: Folder):
        self.model, self.folder = model, folder
        self.settings = model.fingerprint

    def __enter__(self) -> "VectorSweeper":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def sweep(self, shards: Iterable[Shard], watch: Watch = lambda rows, errors: None) -> Iterator[ShardReport]:
        """Shard by shard, reporting each when its file is in place."""
        for shard in shards:
            try:
                yield self._sweep(shard, watch)
            except (AuditorError, OSError, pa.ArrowException) as error:
                yield ShardReport(shard.name, failure=error.reason if isinstance(error, ShardError) else str(error))

    def _sweep(self, shard: Shard, watch: Watch) -> ShardReport:
        """Read again where the files are no longer what they were when it began; in the end that is a failure."""
        assert isinstance(shard, VectorShard)  # a corpus is of one kind
        for _ in range(READINGS):
            report = self._sweep_once(shard, watch)
            if report is not None:
                return report
        return ShardReport(shard.name, failure=CHANGED)

    def _sweep_once(self, shard: VectorShard, watch: Watch) -> ShardReport | None:
        """None where the files have changed in the meantime: what was read of them is thrown away."""
        fingerprint = shard.fingerprint()
        with shard.open_vectors() as opened:
            begin = Begin(shard.name, fingerprint, opened.table.num_rows, (), own_uids=shard.roles.uid is not None)
            file = EmbeddingsFile(self.folder, begin, shard.dim, self.settings)
            try:
                self._fill(file, shard, opened, watch)
                if shard.fingerprint() == fingerprint:
                    return file.publish()
            except BaseException:
                file.discard()
                raise
            file.discard()
            return None

    def _fill(self, file: EmbeddingsFile, shard: VectorShard, opened: OpenVectors, watch: Watch) -> None:
        named = name_rows(opened.table, shard.roles, shard.start)
        for stretch in opened.stretches:
            table = stretch_table(file.schema, shard, opened.table, named, stretch)
            file.write(table, table.num_rows, watch)
        if shard.carried:
            file.carried = cast_columns(opened.table, shard.carried)


def stretch_table(schema: pa.Schema, shard: VectorShard, table: pa.Table, named: Named, stretch: Stretch) -> pa.Table:
    """Rows of the embeddings file."""
    visual, text = check_vectors(stretch.visual, shard.dim), check_vectors(stretch.text, shard.dim)
    rows = slice(stretch.first, stretch.first + len(visual.wrong))
    facts, ok = piece_table(shard, table, named, rows, visual, text)
    there = dict(zip(facts.column_names, facts.columns, strict=True))
    there |= {"visual": usable_vectors(visual.vectors, ok), "text": usable_vectors(text.vectors, ok)}
    columns = [there.get(field.name, pa.nulls(len(ok), field.type)) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)
