"""Damaged, deleted and foreign files of a finished audit are found, named, and repaired by the same command."""

import shutil
from pathlib import Path

import pytest

from auditor.audit_folder.folder import Folder
from auditor.cli import run_command_line
from auditor.errors import AuditError
from auditor.query.database import AuditDatabase
from auditor.run.audit_config import AuditConfig
from auditor.run.rescore import rescore
from auditor.run.run_audit import run_audit
from auditor.score.score_config import ScoreConfig
from auditor.sweep.sweep_config import SweepConfig
from tests.support.corpora import write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"), shards=3, size=12)


def audit(corpus: Path, out: Path, model: str) -> None:
    sweep = SweepConfig(frames=4, batch_size=8, decoders=1)
    run_audit(AuditConfig(str(corpus), str(out), model, quiet=True, sweep=sweep))


@pytest.fixture(scope="module")
def sound(corpus: Path, random_model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sound")
    audit(corpus, out, random_model)
    return out


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "audit"))


def zero_bytes(file: Path) -> None:
    """A hole behind an intact footer."""
    data = bytearray(file.read_bytes())
    data[300:700] = bytes(400)
    file.write_bytes(data)


@pytest.mark.parametrize("part", ["samples", "embeddings"])
def test_damage_behind_an_intact_footer_is_found_and_repaired(
    part: str, copy: Path, sound: Path, corpus: Path, random_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = f"{part}/00001.parquet"
    zero_bytes(copy / file)
    assert run_command_line(["verify", str(copy), "--files"]) == 1
    assert file in capsys.readouterr().out
    audit(corpus, copy, random_model)
    assert run_command_line(["verify", str(copy), "--files"]) == 0
    assert Folder(copy).read_table(file).equals(Folder(sound).read_table(file))


def test_damaged_embeddings_are_not_scored_again(copy: Path) -> None:
    zero_bytes(copy / "embeddings/00001.parquet")
    with pytest.raises(AuditError, match=r"00001\.parquet is damaged"):
        rescore(str(copy), None, ScoreConfig(), quiet=True)


def test_files_from_elsewhere_are_left_out_and_named(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for part in ("samples", "embeddings"):
        shutil.copy(copy / part / "00001.parquet", copy / part / "stranger.parquet")
    with AuditDatabase(copy) as database:
        assert database.rows("SELECT count(*) AS n FROM samples")[0]["n"] == 36
    head = str(tmp_path / "head")
    for command in (
        *(["summary"], ["query", "SELECT 1"], ["worst"]),
        *(["verify", "-n", "1"], ["fit", "--out", head], ["overlap", str(copy)]),
    ):
        assert run_command_line([command[0], str(copy), *command[1:]]) == 0
        assert "do not belong to this audit" in capsys.readouterr().err
    assert run_command_line(["verify", str(copy), "--files"]) == 1


def test_a_shard_that_is_gone_is_named(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for part in ("samples", "embeddings"):
        (copy / part / "00002.parquet").unlink()
    assert run_command_line(["summary", str(copy)]) == 0
    said = capsys.readouterr().err
    assert "1 shards of this audit are missing with their 12 rows, such as 00002" in said
    assert run_command_line(["verify", str(copy), "--files"]) == 1
