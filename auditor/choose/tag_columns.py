"""Prompt columns: the probability that each medium shows what a prompt says, or is like some marked media.

    tag_media(database, ["a watermark"])          # columns `watermark` and `watermark_margin`

The margins of all shards are computed first, from the stored embeddings; a histogram of them is kept for each kind of
medium, on which the mixture is fitted; then the probabilities are written. Memory does not grow with the audit. After
an interruption the same call continues.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditor.audit_folder.audit_files import find_swept_shards
from auditor.audit_folder.embeddings import name_embeddings_file, read_facts
from auditor.audit_folder.extra_columns import ColumnSource, name_column_file, publish_source, write_columns
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.tag_estimates import MARGIN, TAGS, Tag, TagShare
from auditor.choose.learned_direction import learn_direction
from auditor.choose.marked_media import read_marked_media
from auditor.choose.prompt_files import (
    AGAINST,
    Prompt,
    PromptError,
    Prompts,
    is_prompt_file,
    make_prompts,
    name_prompt,
    read_prompt_file,
)
from auditor.choose.prompt_mixture import PromptMixture, count_margins, fit_prompt_mixture
from auditor.query.apply_function import MARK, ApplyTask, apply_function, make_apply_task
from auditor.query.database import AuditDatabase
from auditor.query.join_columns import check_new_columns, make_source_name
from auditor.query.search import get_encoder_client
from auditor.vectors import Floats, Ints
from auditor.workers.encoder_client import SearchError
from auditor.workers.process_pool import Engine, ProcessPool

BLOCK = 65_536  # vectors multiplied at once
Mixtures = Mapping[str, Sequence[PromptMixture | str]]  # by kind of medium, for each column


@dataclass(frozen=True)
class VectorMargins:
    """The margins of media: the products of their vectors with a direction for each column."""

    columns: tuple[str, ...]
    directions: Floats  # (C, D)

    @property
    def fingerprint(self) -> str:
        return hashlib.blake2b(self.directions.tobytes() + "\n".join(self.columns).encode(), digest_size=16).hexdigest()

    def __call__(self, visual: Floats) -> dict[str, Floats]:
        margins = visual @ self.directions.T
        return {f"{column}{MARGIN}": margins[:, number] for number, column in enumerate(self.columns)}


def tag_media(
    database: AuditDatabase,
    prompts: Prompts = (),
    *,
    against: Sequence[str] | str | None = None,
    examples: str | None = None,
    name: str = "",
    prefix: str = "",
    model: str | None = None,
    force: bool = False,
    engine: Engine | None = None,
) -> list[Tag]:
    """Add a column for each prompt, or one that is learned from the marked rows of a file.

    `prompts` are texts, a TOML file, or quality, text or medium, which ship with the auditor; `against` is the opposite
    of texts, by default "a photo". `name` is that of the column, if there is one, or of the columns together.
    """
    if bool(prompts) == bool(examples):
        raise PromptError("give prompts, a file of prompts (--prompts), or marked rows (--by): one of them")
    if against and (examples or is_prompt_file(prompts)):
        raise PromptError("against belongs to prompts that are texts; a file of prompts has its own")
    if examples:
        column = prefix + name_prompt(name or make_source_name(examples))
        return tag_by_examples(database, examples, column, force, engine)
    if isinstance(prompts, Path) or is_prompt_file(prompts):
        choices, name = read_prompt_file(str(prompts)), name or prefix + make_source_name(str(prompts))
    else:
        choices = make_prompts([prompts] if isinstance(prompts, str) else list(prompts), against or AGAINST)
        choices = [replace(choices[0], name=name_prompt(name))] if name and len(choices) == 1 else choices
    columns = [prefix + prompt.name for prompt in choices]
    source = check_tag_columns(database, columns, name, force)
    directions, spec = encode_prompts(database, choices, model)
    tags = [Tag(column, p.texts, p.against, spec, {}) for column, p in zip(columns, choices, strict=True)]
    return write_tags(database, source, tags, directions, force, engine)


def tag_by_examples(
    database: AuditDatabase, examples: str, column: str, force: bool, engine: Engine | None
) -> list[Tag]:
    source = check_tag_columns(database, [column], column, force)
    learned = learn_direction(*read_marked_media(database, examples))
    spec = str((database.manifest.get("model") or {}).get("spec") or "")
    tag = Tag(column, (), (), spec, {}, learned.examples, learned.auroc)
    return write_tags(database, source, [tag], learned.direction[None], force, engine)


def check_tag_columns(database: AuditDatabase, columns: Sequence[str], name: str, force: bool) -> str:
    """Return the name of the source of the new columns; refuse columns that exist before anything is computed."""
    if not find_swept_shards(database.files.folder):
        raise PromptError(f"{database.path} has no embeddings: run the `auditor audit` command again")
    source = make_source_name(name or columns[0])
    check_new_columns(database, source, [*columns, *(f"{column}{MARGIN}" for column in columns)], force)
    return source


def encode_prompts(database: AuditDatabase, prompts: Sequence[Prompt], model: str | None) -> tuple[Floats, str]:
    """Return the directions (P, D) of prompts: mean text minus mean opposite, both of norm 1; and the model."""
    if not (database.manifest.get("model") or {}).get("spec"):
        raise PromptError(
            f"{database.path} does not name the model that made its embeddings, so there is no text tower for prompts; "
            "`auditor tag --by EXAMPLES` needs none"
        )
    client = get_encoder_client(database, model)
    texts = list(dict.fromkeys(text for prompt in prompts for text in (*prompt.texts, *prompt.against)))
    try:
        vectors = dict(zip(texts, client.encode_texts(texts), strict=True))
    except SearchError as error:
        raise PromptError(f"the prompts cannot be encoded: {error}") from None

    def average(group: Sequence[str]) -> Floats:
        mean = np.mean([vectors[text] for text in group], axis=0)
        return np.asarray(mean / np.linalg.norm(mean), np.float32)

    return np.stack([average(prompt.texts) - average(prompt.against) for prompt in prompts]), client.spec


def write_tags(
    database: AuditDatabase, source: str, tags: Sequence[Tag], directions: Floats, force: bool, engine: Engine | None
) -> list[Tag]:
    folder = database.files.folder
    width = folder.table_schema(name_embeddings_file(find_swept_shards(folder)[0])).field("visual").type.list_size
    if directions.shape[1] != width:
        raise PromptError(f"the text tower gives vectors of width {directions.shape[1]}, the audit has {width}")
    function = VectorMargins(tuple(tag.column for tag in tags), directions)
    work = make_apply_task(function, ["visual"], name=source, batch_size=BLOCK)
    engine = engine or choose_engine(database)
    estimates: list[Tag] = []

    def publish(_: AuditDatabase, work: ApplyTask, shards: Sequence[str]) -> None:
        estimates.extend(publish_tags(folder, work, shards, tags, engine))

    apply_function(database, function, work, force=force, engine=engine, publish=publish)
    return estimates


def choose_engine(database: AuditDatabase) -> Engine:
    """Choose the processes that read the embeddings of an audit: several if there are many."""
    return ProcessPool().choose_engine(len(database.files.all), partial(database.files.folder.bytes_in, "embeddings"))


def publish_tags(
    folder: Folder, work: ApplyTask, shards: Sequence[str], tags: Sequence[Tag], engine: Engine
) -> list[Tag]:
    """Fit the mixtures to the margins of all shards, write the probabilities, and make the columns visible."""
    columns = tuple(tag.column for tag in tags)
    counts: dict[str, Ints] = {}
    for by_kind in engine.each(partial(count_shard_margins, folder, work.name, columns), shards):
        for kind, cells in by_kind.items():
            counts[kind] = counts.get(kind, 0) + cells
    mixtures: Mixtures = {kind: [fit_prompt_mixture(column) for column in cells] for kind, cells in counts.items()}
    for _ in engine.each(partial(write_probabilities, folder, work, columns, mixtures), shards):
        pass
    finished = [
        replace(tag, shares={kind: make_tag_share(mixtures[kind][i], int(counts[kind][i].sum())) for kind in counts})
        for i, tag in enumerate(tags)
    ]
    types = {name: "float32" for column in columns for name in (column, f"{column}{MARGIN}")}
    about = {"from": "auditor tag", "given": list(work.columns), MARK: work.mark}
    publish_source(folder, ColumnSource(work.name, types, {**about, TAGS: [asdict(tag) for tag in finished]}))
    return finished


def make_tag_share(mixture: PromptMixture | str, media: int) -> TagShare:
    if isinstance(mixture, str):
        return TagShare(media, reason=mixture)
    return TagShare(media, round(mixture.share, 6), round(mixture.low, 6), round(mixture.high, 6))


def read_margins(folder: Folder, source: str, columns: Sequence[str], shard: str) -> tuple[pa.Table, Any]:
    """Return the margins of a shard's rows and the kinds of their media, null where there is no margin."""
    margins = folder.read_table(name_column_file(source, shard))
    empty = pa.nulls(margins.num_rows, pa.float32())  # a shard without media has no margins
    stored = {name: margins[name] if name in margins.column_names else empty for name in (c + MARGIN for c in columns)}
    return pa.table(stored), read_facts(folder, shard, ["kind"]).column("kind")


def count_shard_margins(folder: Folder, source: str, columns: Sequence[str], shard: str) -> dict[str, Ints]:
    """Count the margins of a shard's media by kind, (C, CELLS). The captions of a medium follow each other."""
    margins, kinds = read_margins(folder, source, columns, shard)
    counts: dict[str, Ints] = {}
    first = margins.column(0).to_numpy()
    begins = np.isfinite(first) & (np.append(np.nan, first[:-1]) != first)
    for kind in kinds.filter(pa.array(begins)).unique().to_pylist():
        chosen = begins & pc.equal(kinds, kind).fill_null(False).to_numpy()
        counts[kind] = np.stack([count_margins(column.to_numpy()[chosen]) for column in margins.columns])
    return counts


def write_probabilities(
    folder: Folder, work: ApplyTask, columns: Sequence[str], mixtures: Mixtures, shard: str
) -> None:
    margins, kinds = read_margins(folder, work.name, columns, shard)
    members = {kind: pc.equal(kinds, kind).fill_null(False).to_numpy() for kind in mixtures}
    table: dict[str, pa.Array] = {}
    for number, column in enumerate(columns):
        margin = margins.column(number).to_numpy()
        p = np.full(len(margin), np.nan, np.float32)
        for kind, fits in mixtures.items():
            if isinstance(mixture := fits[number], PromptMixture):
                p[members[kind]] = mixture.p(margin[members[kind]])
        table |= {column: pa.array(p, from_pandas=True), f"{column}{MARGIN}": pa.array(margin, from_pandas=True)}
    write_columns(folder, work.name, shard, pa.table(table), {MARK: work.mark})
