"""`auditor towards`: every kind of target, test splits, bad input, and filters that use the column."""

import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from auditor.audit_folder.folder import Folder
from auditor.choose.media_columns import read_shard_media
from auditor.cli import run_command_line
from auditor.corpus.shard import CorpusOptions
from auditor.errors import AuditorError
from auditor.python_api import Audit
from auditor.query.rules import RuleError
from auditor.run.audit_config import AuditConfig
from auditor.run.compare_target import names_test_split
from auditor.run.run_audit import run_audit
from auditor.vectors import Floats
from model.checkpoint import load_model
from tests.support.corpora import make_picture, make_sample, write_tar
from tests.support.stored import write_datacomp

COUNT = 24


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, random_model: str) -> Path:
    """A corpus, and as targets a folder of bare pictures and a test split, both with three pictures of the corpus."""
    place = tmp_path_factory.mktemp("towards")
    write_tar(place / "corpus/0.tar", [(f"{i}", make_sample(i)) for i in range(COUNT)])
    (place / "pictures").mkdir()
    for number in (3, 7, 11):
        (place / f"pictures/{number}.jpg").write_bytes(make_picture(number))
    write_tar(place / "coco-test/0.tar", [(f"t{i}", make_sample(i)) for i in (3, 7, 11)])
    run_audit(AuditConfig(str(place / "corpus"), str(place / "audit"), random_model, quiet=True))
    return place


def read_column(audit: Path, column: str) -> dict[str, float]:
    with Audit(audit) as opened:
        return {row["key"]: row["x"] for row in opened.sql(f"SELECT key, {column} AS x FROM samples").to_pylist()}


def read_vectors(audit: Path) -> dict[str, Floats]:
    with Audit(audit) as opened:
        keys = opened.sql("SELECT key FROM samples")["key"].to_pylist()
        [shard] = opened.manifest["shards"]
    return dict(zip(keys, read_shard_media(Folder(audit), shard)[0], strict=True))


def test_bare_pictures_are_a_target(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["towards", str(place / "audit"), str(place / "pictures"), "--name", "mine"]) == 0
    assert "towards_mine: 24 rows compared with 3 vectors" in capsys.readouterr().out
    vectors = read_vectors(place / "audit")
    target = np.stack([vectors[key] for key in ("3", "7", "11")])
    expected = {key: float((target @ vector).max()) for key, vector in vectors.items()}
    assert read_column(place / "audit", "towards_mine") == pytest.approx(expected, abs=5e-3)
    assert all(expected[key] > 0.99 for key in ("3", "7", "11"))


def test_a_target_needs_no_columns_of_the_audited_table(
    place: Path, random_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The audit was told the names of its columns; a target in tars or in another table does not have them."""
    rows = [f"pictures/{number}.jpg,a dog,a cat" for number in (3, 7, 11)]
    (place / "sources.csv").write_text("\n".join(["picture,raw,refined", *rows]))
    (place / "plain.csv").write_text("\n".join(["image,caption", "pictures/7.jpg,a dog"]))
    options = CorpusOptions(media_column="picture", caption_column=("raw", "refined"))
    run_audit(
        AuditConfig(str(place / "sources.csv"), str(place / "sources"), random_model, options=options, quiet=True)
    )
    for target, count in (("corpus", 24), ("plain.csv", 1)):
        command = ["towards", str(place / "sources"), str(place / target), "--name", target]
        assert run_command_line(command) == 0
        assert f"6 rows compared with {count} vectors" in capsys.readouterr().out
    (place / "odd.csv").write_text("photo,words\nmissing.gif,a dog\n")
    assert run_command_line(["towards", str(place / "sources"), str(place / "odd.csv")]) == 1
    assert "no column 'picture'" in capsys.readouterr().err


def test_texts_are_a_target_of_the_same_tower(place: Path, random_model: str) -> None:
    lines = ["a red square", "two green circles", "a dog"]
    (place / "texts.txt").write_text("\n".join([*lines, "", " "]))
    with Audit(place / "audit") as audit:
        column = audit.towards(place / "texts.txt")
        assert (column.name, column.target) == ("towards_texts", 3)
    texts = load_model(random_model).backbone.encode_texts(lines).cpu().numpy()
    expected = {key: float((texts @ vector).max()) for key, vector in read_vectors(place / "audit").items()}
    assert read_column(place / "audit", "towards_texts") == pytest.approx(expected, abs=2e-3)


def test_an_audit_and_a_matrix_are_targets(place: Path) -> None:
    vectors = np.stack([*read_vectors(place / "audit").values()])
    np.save(place / "matrix.npy", vectors)
    with Audit(place / "audit") as audit:
        audit.towards(place / "audit", name="itself")
        audit.towards(place / "matrix.npy", name="matrix", norm="2")
    assert read_column(place / "audit", "towards_itself") == pytest.approx(
        dict.fromkeys(map(str, range(COUNT)), 1), abs=5e-3
    )
    mean_squares = np.sqrt(((vectors @ vectors.T) ** 2).mean(axis=1))
    assert [*read_column(place / "audit", "towards_matrix").values()] == pytest.approx(mean_squares.tolist(), abs=5e-3)


def test_copies_of_a_test_split_are_left_out(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audit, other = str(place / "audit"), str(place / "coco-test")
    command = ["filter", audit, "--towards", other, "--keep-count", "10"]
    assert run_command_line([*command, "--out", str(place / "kept.txt")]) == 0
    output = capsys.readouterr()
    assert "the target is a test split: filters by it leave out its 3 copies" in output.err
    kept = (place / "kept.txt").read_text().split()
    assert len(kept) == 10 and not {"3", "7", "11"} & set(kept)
    assert run_command_line([*command, "--dry-run", "--json"]) == 0
    output = capsys.readouterr()
    assert "compared with" not in output.err  # the column is there
    effects = json.load(io.StringIO(output.out))
    assert {rule["rule"]: rule["removed"] for rule in effects["rules"]} == {
        "no copy of towards_coco_test": 3, "count": COUNT - 3 - 10,
    }  # fmt: skip
    with Audit(audit) as opened:
        assert opened.keep(min={"towards_coco_test": -1}).count == COUNT - 3
        assert opened.keep(min={"similarity": -1}).count == COUNT


@pytest.mark.parametrize(
    ("other", "is_test"),
    [
        ("coco-test", True), ("/data/flickr/test/{00000..00003}.tar", True), ("imagenet_test2017/", True),
        ("s3://bucket/test.parquet", True), ("latest", False), ("/test/photos", False), ("contest.tar", False),
        ("coco-val", False),
    ],
)  # fmt: skip
def test_a_test_split_is_known_by_its_name(tmp_path: Path, other: str, is_test: bool) -> None:
    assert names_test_split(other, Folder(tmp_path)) == is_test


def test_the_same_name_is_not_computed_twice(place: Path) -> None:
    with Audit(place / "audit") as audit:
        audit.towards(place / "pictures", name="twice")
        with pytest.raises(AuditorError, match="--force computes it again, --name"):
            audit.towards(place / "pictures", name="twice")
        assert audit.towards(place / "audit", name="twice", force=True).target == COUNT


def test_bad_targets_are_one_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(place / "narrow.npy", np.ones((3, 5), np.float32))
    (place / "empty.txt").write_text("\n\n")
    datacomp = write_datacomp(place / "datacomp", files=1, count=60, dim=8)
    run_audit(AuditConfig(f"datacomp:{datacomp}", str(place / "stored"), quiet=True))
    audit = str(place / "audit")
    cases = {
        (audit, str(place / "narrow.npy")): "vectors of 5 numbers, the audit of",
        (audit, str(place / "empty.txt")): "the target is empty",
        (audit, str(place / "stored")): "made by another model",
        (audit, f"datacomp:{datacomp}"): "vectors of 8 numbers",
        (audit, str(place / "absent")): "does not exist",
        (audit, str(place / "absent.txt")): "cannot be read",
        (str(place / "stored"), str(place / "texts2.txt")): "name it with --model",
    }
    (place / "texts2.txt").write_text("a dog")
    for (path, other), message in cases.items():
        assert run_command_line(["towards", path, other]) == 1, other
        [line] = capsys.readouterr().err.strip().splitlines()
        assert message in line, line


def test_towards_needs_a_number(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["filter", str(place / "audit"), "--towards", str(place / "absent"), "--dry-run"]) == 1
    assert "towards needs the number or share to keep" in capsys.readouterr().err  # before the target is opened
    with Audit(place / "audit") as opened, pytest.raises(RuleError, match="only 24 pairs"):
        opened.keep(count=25)


def test_a_stored_column_is_a_target_too(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audit = str(place / "audit")
    with Audit(audit) as opened:
        opened.towards(place / "pictures", name="stored")
        kept = opened.keep(towards="towards_stored", by="similarity", count=5).uids.to_pylist()
    command = ["filter", audit, "--towards", "towards_stored", "--by", "similarity", "--keep-count", "5"]
    assert run_command_line([*command, "--out", str(place / "uids.parquet")]) == 0
    assert "compared with" not in capsys.readouterr().err
    assert pq.read_table(place / "uids.parquet")["uid"].to_pylist() == kept
