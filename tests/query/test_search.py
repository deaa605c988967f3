"""Search over media with several captions: against brute force, with conditions, and its errors."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from auditor.audit_folder import arrow_schema
from auditor.audit_folder.embeddings import build_nullable_vectors
from auditor.audit_folder.folder import Folder
from auditor.cli import cli
from auditor.errors import AuditError
from auditor.python_api import Audit
from auditor.query.search_index import open_vectors
from auditor.workers.encoder_client import SearchError
from tests.support.synthetic import write_audit

DIM, SHARDS, MEDIA, CAPTIONS = 16, 3, 20, 3


def unit(rows: int, seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(rows, DIM))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float16)


@pytest.fixture
def audit(tmp_path: Path) -> Audit:
    """Three shards of 20 media with three captions each, the fourth medium of each shard corrupt."""
    folder = Path(write_audit(tmp_path / "audit", 10, 10))
    shutil.rmtree(folder / "samples")
    for shard in range(SHARDS):
        write_shard(folder, shard)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["counts"] = {}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return Audit(folder)


def write_shard(folder: Path, shard: int) -> None:
    rows = [
        {
            "uid": f"{shard:02x}{medium:02x}{caption:028x}",
            "key": f"{shard}-{medium:02d}",
            "caption_index": caption,
            "shard": f"s{shard}",
            "kind": "image",
            "caption": f"caption {caption} of {medium}",
            "status": "corrupt" if medium == 3 else "ok",
        }
        for medium in range(MEDIA)
        for caption in range(CAPTIONS)
    ]
    facts = pa.Table.from_pylist(rows, schema=arrow_schema.FACTS)
    ok = np.array([row["status"] == "ok" for row in rows])
    first = ok & np.array([row["caption_index"] == 0 for row in rows])
    stored = facts.append_column("visual", build_nullable_vectors(unit(int(first.sum()), shard), first))
    stored = stored.append_column("text", build_nullable_vectors(unit(int(ok.sum()), 100 + shard), ok))
    for name in ("embeddings", "samples"):
        (folder / name).mkdir(exist_ok=True)
    pq.write_table(stored, folder / "embeddings" / f"s{shard}.parquet")
    scores = pa.table([pa.nulls(len(rows), field.type) for field in arrow_schema.SCORES], schema=arrow_schema.SCORES)
    pq.write_table(
        pa.table([*facts.columns, *scores.columns], schema=arrow_schema.SAMPLES),
        folder / "samples" / f"s{shard}.parquet",
    )


def stored(side: str) -> tuple[np.ndarray, list[tuple[str, int]]]:
    """All vectors of a side and the key and caption each is of, straight from how they were written."""
    places = []
    for shard in range(SHARDS):
        for medium in range(MEDIA):
            if medium != 3:
                places += [(f"{shard}-{medium:02d}", caption) for caption in range(1 if side == "visual" else CAPTIONS)]
    count = len(places) // SHARDS
    start = 0 if side == "visual" else 100
    return np.concatenate([unit(count, start + shard) for shard in range(SHARDS)]).astype(np.float32), places


@pytest.mark.parametrize(("over", "side"), [("media", "visual"), ("captions", "text")])
def test_like_a_row_is_brute_force(audit: Audit, over: str, side: str) -> None:
    matrix, places = stored(side)
    own = places.index(("1-07", 0))
    similarity = matrix @ matrix[own]
    expected = [places[i] for i in np.argsort(-similarity, kind="stable") if i != own][:10]
    found = audit.search(like="1-07", over=over, n=10)
    assert [(row.key, row.caption_index) for row in found] == expected
    assert [row.similarity for row in found] == pytest.approx(sorted(np.delete(similarity, own))[::-1][:10], abs=1e-5)


def test_a_condition_on_any_caption_admits_its_medium(audit: Audit) -> None:
    found = audit.search(like="1-07", where="caption_index = 2 AND shard <> 's0'", n=100)
    assert {row.caption_index for row in found} == {2}
    assert len(found) == 2 * (MEDIA - 1) - 1
    captions = audit.search(like="1-07", over="captions", where="key = '2-05'", n=100)
    assert {(row.key, row.caption_index) for row in captions} == {("2-05", i) for i in range(CAPTIONS)}
    assert audit.search(like="1-07", where="key = 'nobody'") == []


class MissingModel:
    def encode_image(self, path: str) -> None:
        raise SearchError(f"{path} cannot be encoded")


def test_what_cannot_be_searched_is_told(audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    for given, words in (
        ({}, "one of"),
        ({"text": "  "}, "one of"),
        ({"like": "0-01", "n": 0}, "at least 1"),
        ({"like": "0-03"}, "was not encoded"),
        ({"like": "0-01", "over": "x"}, "x"),
    ):
        with pytest.raises(SearchError, match=words):
            audit.search(**given)  # type: ignore[arg-type]
    with pytest.raises(AuditError, match="name its model with --model"):
        audit.search("a dog")
    with pytest.raises(SearchError, match="cannot be loaded"):
        audit.search("a dog", model="ViT-B-32@openai")  # the model of this audit is not here; by example it still works
    monkeypatch.setattr("auditor.query.search.get_encoder_client", lambda *_: MissingModel())  # it need not start again
    with pytest.raises(SearchError, match=r"cannot search by nothing\.png: "):
        audit.search(image="nothing.png")
    assert audit.search(like="0-01", n=1)
    shutil.rmtree(Path(audit.path) / "embeddings")
    with pytest.raises(SearchError, match="no embeddings"):
        Audit(audit.path).search(like="0-01")


def test_the_flat_file_is_used_again_and_made_anew_when_embeddings_change(audit: Audit) -> None:
    folder = Folder(audit.path)
    first = open_vectors(folder, "visual")
    written = (Path(audit.path) / "search" / "visual.f16").stat().st_mtime_ns
    assert len(open_vectors(folder, "visual")) == len(first) == SHARDS * (MEDIA - 1)
    assert (Path(audit.path) / "search" / "visual.f16").stat().st_mtime_ns == written
    (Path(audit.path) / "embeddings" / "s2.parquet").unlink()
    assert len(open_vectors(folder, "visual")) == 2 * (MEDIA - 1)


def test_the_command_lists_what_was_found(audit: Audit) -> None:
    done = CliRunner().invoke(cli, ["search", audit.path, "--like", "1-07", "-n", "3", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [set(row) for row in found] == [{"uid", "key", "caption_index", "caption", "similarity"}] * 3
    assert [row["key"] for row in found] == [row.key for row in audit.search(like="1-07", n=3)]
