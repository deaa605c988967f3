"""`auditor towards`: compare the media of an audit with a target set and store the similarity as a column.

The target is an audit by the same model, stored embeddings (a corpus of them, or a matrix in a .npy file), a corpus or
a folder of pictures, which the model of the audit then encodes, or a text file with a description in each line. If its
name says that it is a test split, media that are copies of its media are found too (auditor/run/find_overlap.py), and
every filter that uses the column leaves them out.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.manifest import MANIFEST_NAME, Manifest
from auditor.choose.media_columns import MediaColumn, store_media_column
from auditor.choose.target_similarity import Norm, TargetError, build_similarity, collect_target
from auditor.corpus.caption_text import decode_text
from auditor.corpus.corpus_files import digest, read_range
from auditor.corpus.stored.npy_matrix import MatrixFile
from auditor.query.apply_function import ApplyResult
from auditor.query.database import AuditDatabase
from auditor.query.join_columns import check_new_columns, make_source_name
from auditor.run.engine import LocalEngine
from auditor.run.find_overlap import find_overlap_with, list_encoded_shards, load_audit_backbone, open_other_corpus
from auditor.score.duplicate_search import read_first_rows
from auditor.sweep.sweep_config import SweepConfig
from auditor.vectors import Floats, convert_to_single
from auditor.workers.process_pool import Engine
from model.backbone import resolve_device

TEXTS_TOGETHER = 256
MATRIX_ROWS = 65_536
TEST_WORDS = {"test", "testing", "tests"}


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """The column that `auditor towards` stored, and what it was computed from."""

    result: ApplyResult
    target: int  # vectors of the target
    compared: int  # those that the highest cosine is from
    test_copies: int | None = None  # media that are also in the target, if that is a test split

    @property
    def name(self) -> str:
        return self.result.name

    def describe(self) -> str:
        """One line for people."""
        drawn = "" if self.compared == self.target else f", {self.compared:,} of them drawn at random"
        line = f"{self.name}: {self.result.rows:,} rows compared with {self.target:,} vectors of the target{drawn}"
        if self.test_copies is None:
            return line
        return (
            f"{line}; the target is a test split: filters by it leave out its {self.test_copies:,} copies in this audit"
        )

    def to_dict(self) -> dict[str, Any]:
        return {**self.result.to_dict(), "target": self.target, "test_copies": self.test_copies}


def name_target_column(other: str, name: str | None = None) -> str:
    return f"towards_{make_source_name(name or other).replace('-', '_')}"  # SQL names it without quotes


def compare_target(
    database: AuditDatabase,
    other: str,
    *,
    name: str | None = None,
    norm: Norm = "inf",
    model: str | None = None,
    device: str = "auto",
    force: bool = False,
    engine: Engine | None = None,
    quiet: bool = True,
) -> TargetColumn:
    """Store the similarity of each medium to a target as the column towards_<name>; `engine` is this machine's."""
    device = resolve_device(device)
    folder, column = database.files.folder, name_target_column(other, name)
    engine = engine or LocalEngine(folder, None, SweepConfig())
    if not force and any(source.name == column for source in database.files.sources):
        raise TargetError(f"{folder.url} has the column {column}: --force computes it again, --name names another one")
    check_new_columns(database, column, [column], force)
    manifest, test_set, copies = Manifest.load(folder), None, None
    if other.endswith(".npy"):
        target = collect_target(read_matrix(other))
    elif other.endswith(".txt"):
        target = collect_target(encode_text_lines(other, manifest, model, device))
    else:
        with open_other_corpus(other, manifest, model, device, bare_media=True) as opened:
            target = collect_target(iterate_media_vectors(opened))
            if names_test_split(other, opened):
                matches = find_overlap_with(folder, other, opened, engine=engine)
                test_set, copies = other, pc.sum(pc.equal(matches["what"], "media")).as_py() or 0
    if target.vectors.shape[1] != manifest.model["dim"]:
        raise TargetError(
            f"{other} has vectors of {target.vectors.shape[1]} numbers, the audit of {manifest.model['dim']}: "
            "they are of another model"
        )
    origin = {"from": other, "norm": norm, "test_set": test_set, "vectors": target.count}
    mark = digest(f"{target.mark} {norm}".encode())
    stored = MediaColumn(column, build_similarity(target, norm), mark, origin)
    result = store_media_column(database, stored, force=force, engine=engine, quiet=quiet)
    return TargetColumn(result, target.count, len(target.vectors), copies)


def iterate_media_vectors(folder: Folder) -> Iterator[Floats]:
    for shard in list_encoded_shards(folder):
        yield convert_to_single(read_first_rows(folder, shard, ["visual"])[1])


def read_matrix(path: str) -> Iterator[Floats]:
    with MatrixFile(path).open() as matrix:
        for start in range(0, matrix.rows, MATRIX_ROWS):
            yield np.nan_to_num(matrix.read(start, min(start + MATRIX_ROWS, matrix.rows)).astype(np.float32))


def encode_text_lines(path: str, manifest: Manifest, model: str | None, device: str) -> Iterator[Floats]:
    try:
        lines = [line.strip() for line in decode_text(read_range(path)).splitlines() if line.strip()]
    except OSError as error:
        raise TargetError(f"{path} cannot be read: {error.strerror or error}") from None
    if not lines:
        return
    backbone = load_audit_backbone(manifest, model, device)
    for start in range(0, len(lines), TEXTS_TOGETHER):
        texts = lines[start : start + TEXTS_TOGETHER]
        yield np.asarray(backbone.encode_texts(texts).float().cpu().numpy(), np.float32)


def names_test_split(other: str, folder: Folder) -> bool:
    """Whether a word of a target's name is test: of its folder or file, the folder of its shards, or its corpus."""
    names = [other, Manifest.load(folder).corpus["spec"]] if folder.exists(MANIFEST_NAME) else [other]
    return any(TEST_WORDS & {*re.split("[^a-z]+", part.lower())} for name in names for part in name_parts(name))


def name_parts(path: str) -> list[str]:
    """The last name of a path or spec, and the folder before it if that is a file."""
    *folders, last = path.rstrip("/").split("/")
    return [last, *folders[-1:]] if re.search(r"\.\w{1,8}$", last) else [last]
