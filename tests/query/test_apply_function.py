"""User functions get the arguments they name; results are stored at the right rows and resumed shard by shard."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from auditor.errors import AuditorError
from auditor.python_api import Audit
from auditor.query.apply_function import make_apply_task
from auditor.run.audit_config import AuditConfig
from auditor.run.run_audit import run_audit
from tests.support.stored import make_pairs, make_uids, normalize_rows, write_datacomp
from tests.support.synthetic import write_corpus_audit


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    return write_corpus_audit(tmp_path)[0]


def shouting(caption: Sequence[str], similarity: Any) -> dict[str, Any]:
    assert isinstance(similarity, np.ndarray)
    return {"letters": [len(text) for text in caption], "half": similarity / 2}


def test_results_stand_at_their_rows_and_are_columns_like_any_other(audit: Path) -> None:
    with Audit(audit) as opened:
        done = opened.apply(shouting, columns=["caption", "similarity"], prefix="my_", batch_size=7)
        assert (done.columns, done.shards, done.resumed, done.missed) == (("my_letters", "my_half"), 3, 0, 0)
        rows = opened.sql("SELECT status, caption, similarity, my_letters, my_half FROM samples").to_pylist()
        assert len(opened.keep(min={"my_letters": 30})) > 0
    assert {row["status"] for row in rows} == {"ok", "corrupt"}
    for row in rows:
        if row["status"] == "ok":
            assert row["my_letters"] == len(row["caption"])
            assert row["my_half"] == pytest.approx(row["similarity"] / 2)
        else:
            assert row["my_letters"] is None and row["my_half"] is None


class Redness:
    """A model that is loaded once."""

    made = 0

    def __init__(self) -> None:
        Redness.made += 1

    def __call__(self, image: Sequence[Any], media: Sequence[bytes]) -> dict[str, Any]:
        assert all(picture.shape == (32, 32, 3) and picture.dtype == np.uint8 for picture in image)
        return {"red": [float(picture[..., 0].mean()) for picture in image], "bytes": [len(data) for data in media]}


def test_decoded_pictures_and_bytes(audit: Path) -> None:
    Redness.made = 0
    with Audit(audit) as opened:
        path = opened.sql("SELECT media_path FROM samples WHERE shard = '00001'")["media_path"][0].as_py()
        done = opened.apply(Redness, columns=["image", "media"], image_size=32)
        assert Redness.made == 1 and done.missed == 0
        rows = opened.sql("SELECT red, bytes, media_size FROM samples WHERE status = 'ok'").to_pylist()
        assert len({row["red"] for row in rows}) > 40 and all(row["bytes"] == row["media_size"] for row in rows)
        Path(path).unlink()  # a medium that is gone costs its own rows
        done = opened.apply(Redness, columns=["image", "media"], image_size=32, force=True)
        assert done.missed == opened.count("status = 'ok' AND shard = '00001'") > 0
        assert opened.count("status = 'ok' AND red IS NULL") == done.missed


def test_embeddings_are_those_that_were_stored(tmp_path: Path) -> None:
    corpus = write_datacomp(tmp_path / "corpus", count=200)
    run_audit(AuditConfig(f"datacomp:{corpus}", str(tmp_path / "audit"), quiet=True))

    def first(uid: Sequence[str], visual: Any, text: Any) -> dict[str, Any]:
        return {"v": visual[:, 0], "t": text[:, 1], "of": uid}

    with Audit(tmp_path / "audit") as opened:
        opened.apply(first, columns=["uid", "visual", "text"], batch_size=50)
        rows = {row["uid"]: row for row in opened.sql("SELECT uid, v, t, of FROM samples").to_pylist()}
    for part in (0, 1):
        visual, text = make_pairs(200, seed=part)
        for uid, v, t in zip(
            make_uids(200, part), normalize_rows(visual)[:, 0], normalize_rows(text)[:, 1], strict=True
        ):
            assert rows[uid]["of"] == uid
            assert (rows[uid]["v"], rows[uid]["t"]) == pytest.approx((v, t), abs=2e-3)


def test_what_was_done_is_not_done_again_unless_the_function_changes(audit: Path) -> None:
    calls: list[int] = []

    def failing(caption: Sequence[str]) -> list[int]:
        calls.append(len(caption))
        if len(calls) == 3:
            raise RuntimeError("the model ran out of memory")
        return [1] * len(caption)

    with Audit(audit) as opened:
        with pytest.raises(AuditorError, match="failing failed in shard 00002: RuntimeError: the model ran out"):
            opened.apply(failing, columns=["caption"])
        assert "failing" not in opened.columns  # half of it is not seen
        done = opened.apply(failing, columns=["caption"])
        assert (done.resumed, len(calls)) == (2, 4)
        assert opened.count("failing = 1") == opened.count("status = 'ok'")
        with pytest.raises(AuditorError, match="--force replaces"):
            opened.apply(failing, columns=["caption"])
    assert make_apply_task(failing, ["caption"]).mark != make_apply_task(failing, ["key"]).mark
    assert make_apply_task(failing, ["caption"]).mark != make_apply_task(shouting, ["caption"], name="failing").mark


def test_types_agree_over_shards(audit: Path) -> None:
    def mixed(key: Sequence[str]) -> list[Any]:
        number = int(key[0]) // 20
        return [{0: None, 1: 1, 2: 0.5}[number]] * len(key)

    with Audit(audit) as opened:
        opened.apply(mixed, columns=["key"], batch_size=1000)
        found = opened.sql("SELECT shard, max(mixed) AS x FROM samples GROUP BY shard ORDER BY shard")
        assert found["x"].to_pylist() == [None, 1.0, 0.5]


@pytest.mark.parametrize(
    ("made", "columns", "message"),
    [
        (lambda caption: [1], ["caption"], "returned 1 values for"),
        (lambda caption: [[1.0]] * len(caption), ["caption"], "return numbers, booleans or texts"),
        (lambda caption: [object()] * len(caption), ["caption"], "not a column"),
        (lambda caption: {"similarity": [1.0] * len(caption)}, ["caption"], "already has a column 'similarity'"),
        (lambda caption: caption, ["captoin"], "did you mean caption"),
        (lambda caption: caption, [], "name the arguments of the function"),
        (lambda wrong: wrong, ["caption"], "unexpected keyword argument 'caption'"),
    ],
)
def test_what_cannot_be_a_column_is_one_line(audit: Path, made: Any, columns: list[str], message: str) -> None:
    with Audit(audit) as opened:
        before = opened.columns
        with pytest.raises(AuditorError, match=message) as told:
            opened.apply(made, columns=columns, name="mine")
        assert "\n" not in str(told.value)
        assert opened.columns == before and not (audit / "columns" / "mine" / "about.json").exists()
