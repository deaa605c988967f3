"""Topics of a corpus at a chosen number, as a column: k-means on a sample of media; all are assigned shard by shard."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from auditor.audit_folder.audit_files import find_swept_shards, get_shard_name
from auditor.audit_folder.folder import Folder
from auditor.choose.media_columns import MediaColumn, read_shard_media, store_media_column
from auditor.corpus.corpus_files import digest
from auditor.errors import AuditError
from auditor.query.database import AuditDatabase
from auditor.query.rules import name_topic_column
from auditor.score.statistics.duplicates import SAMPLE_PER_CELL, assign_cells, fit_cells
from auditor.vectors import Floats, Ints
from auditor.workers.process_pool import SERIAL, Engine

MOST_SAMPLED = 200_000  # media that determine the topics
SAMPLE_SHARDS = 256  # shards from which they are drawn
SEED = 0


@dataclass(frozen=True)
class TopicAssignment:
    """Assigns media to the nearest of the topics; can be sent to a worker."""

    centroids: Floats  # (T, D)

    def __call__(self, visual: Floats) -> Ints:
        _, topic, is_own = assign_cells(visual, self.centroids, threshold=1.0)
        return topic[is_own]


def ensure_topics(database: AuditDatabase, count: int, *, engine: Engine = SERIAL, quiet: bool = True) -> bool:
    """Store the column topic_<count> unless every shard has it; returns whether it is new."""
    name = name_topic_column(count)
    source = next((source for source in database.files.sources if source.name == name), None)
    if source is not None and not {*map(get_shard_name, database.files.all)} - {*source.files}:
        return False
    centroids = fit_corpus_topics(database.files.folder, count, engine)
    mark = digest(centroids.tobytes())
    column = MediaColumn(name, TopicAssignment(centroids), mark, {"from": "k-means of the media", "topics": count})
    store_media_column(database, column, force=source is not None, engine=engine, quiet=quiet)
    return True


def fit_corpus_topics(folder: Folder, count: int, engine: Engine) -> Floats:
    shards = find_swept_shards(folder)
    if not shards:
        raise AuditError(
            f"{folder.url} has no embeddings, so it has no topics; balance another column, such as language"
        )
    chosen = np.unique(np.linspace(0, len(shards) - 1, min(SAMPLE_SHARDS, len(shards))).astype(np.int64))
    limit = -(-min(MOST_SAMPLED, max(20_000, count * SAMPLE_PER_CELL)) // len(chosen))
    sample = np.concatenate(list(engine.each(partial(draw_shard_media, folder, limit), [shards[i] for i in chosen])))
    if len(sample) < count:
        raise AuditError(f"balance: {count:,} topics need at least as many media, and there are {len(sample):,}")
    return fit_cells(sample, count, SEED)


def draw_shard_media(folder: Folder, limit: int, shard: str) -> Floats:
    visual, _ = read_shard_media(folder, shard)
    chosen = np.random.default_rng(SEED).choice(len(visual), min(limit, len(visual)), replace=False)
    return visual[np.sort(chosen)]
