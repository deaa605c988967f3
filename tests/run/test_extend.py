"""A corpus that grows: old files do not change, new shards are scored against the old ones, changes are noticed."""

from pathlib import Path
from typing import Any

import pytest

from auditor import Audit
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.manifest import Manifest
from auditor.cli import run_command_line
from auditor.errors import AuditError
from auditor.run.audit_config import AuditConfig
from auditor.run.extend import extend_audit
from auditor.run.rescore import read_score_settings, rescore
from auditor.run.run_audit import run_audit
from auditor.score.corpus_statistics import prepare_context
from tests.support.corpora import make_sample, write_tar
from tests.support.snapshot import Snapshot, take_snapshot


def write(folder: Path, number: int, start: int, count: int = 30) -> None:
    write_tar(folder / f"{number}.tar", [(f"{i}", make_sample(i)) for i in range(start, start + count)])


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, random_model: str) -> AuditConfig:
    place = tmp_path_factory.mktemp("grown") / "place"
    return AuditConfig(str(place / "corpus"), str(place / "audit"), random_model, quiet=True)


@pytest.fixture(scope="module")
def before_extension(settings: AuditConfig) -> Snapshot:
    corpus = Path(settings.corpus)
    for number in range(3):
        write(corpus, number, 100 * number)
    run_audit(settings)
    write(corpus, 3, 300)
    write(corpus, 4, 220)  # 220 to 229 are in shard 2
    return take_snapshot(corpus.parent, "before")


@pytest.fixture(scope="module")
def after_extension(settings: AuditConfig, before_extension: Snapshot) -> Snapshot:
    before_extension.restore()
    extend_audit(settings)
    return take_snapshot(Path(settings.corpus).parent, "after")


@pytest.fixture
def grown(settings: AuditConfig, before_extension: Snapshot) -> AuditConfig:
    """A finished audit of three shards, to which two were added; one of the new ones repeats ten old media."""
    before_extension.restore()
    return settings


@pytest.fixture
def extended(settings: AuditConfig, after_extension: Snapshot) -> AuditConfig:
    """The same audit after an extension."""
    after_extension.restore()
    return settings


def contents(out: str, *folders: str) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes())
        for folder in folders
        for path in Path(out, folder).glob("[012].parquet")
    }


def test_new_shards_are_scored_and_old_files_not_touched(grown: AuditConfig) -> None:
    before = contents(grown.out, "embeddings", "samples", "duplicates")
    old = Manifest.load(Folder(grown.out))
    manifest = extend_audit(grown)
    assert contents(grown.out, "embeddings", "samples", "duplicates") == before
    assert manifest.state == "complete" and manifest.fitted_on == ["0", "1", "2"]
    assert manifest.statistics == old.statistics and manifest.thresholds == old.thresholds
    assert manifest.counts["rows"] == 150
    audit = Audit(grown.out)
    assert audit.count() == 150 and audit.count("shard = '3' AND similarity IS NULL") == 0


def test_new_rows_score_as_if_they_had_been_scored_with_the_old_reference(
    extended: AuditConfig, tmp_path: Path
) -> None:
    """Shard 4 begins with the bytes and captions of ten rows of shard 2, so their scores are equal."""
    rows = (
        Audit(extended.out)
        .sql(
            "SELECT a.similarity = b.similarity AS same, b.duplicate_of = a.uid AS repeats "
            "FROM samples a JOIN samples b ON a.key = b.key AND a.shard = '2' AND b.shard = '4'"
        )
        .to_pylist()
    )
    assert len(rows) == 10 and all(row["same"] and row["repeats"] for row in rows)


def test_drift_is_measured_and_told(grown: AuditConfig, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run_command_line(
            ["audit", grown.corpus, "--out", grown.out, "--model", str(grown.model), "--extend", "--quiet"]
        )
        == 0
    )
    assert "against the old ones" in capsys.readouterr().out
    drift = {one["what"]: one for one in Manifest.load(Folder(grown.out)).drift}
    assert {"ambiguity of a caption", "topics that differ"} <= set(drift)
    assert all(one["low"] <= one["difference"] <= one["high"] for one in drift.values())


def test_it_can_be_done_again_and_refitted(extended: AuditConfig, tmp_path: Path) -> None:
    write(Path(extended.corpus), 5, 600)
    again = extend_audit(extended)
    assert again.fitted_on == ["0", "1", "2"] and again.counts["rows"] == 180
    with pytest.raises(AuditError, match="--refit"):
        rescore(extended.out, None, read_score_settings(extended.out), quiet=True)
    rescore(extended.out, None, read_score_settings(extended.out), refit=True, quiet=True)
    fresh = AuditConfig(extended.corpus, str(tmp_path / "fresh"), extended.model, quiet=True)
    run_audit(fresh)
    refitted = Manifest.load(Folder(extended.out))
    assert refitted.fitted_on is None and refitted.drift == []
    ours, theirs = refitted.statistics["image"], Manifest.load(Folder(fresh.out)).statistics["image"]
    assert (ours["pairs"], ours["reference"]) == (theirs["pairs"], theirs["reference"]) == (180, 180)


def test_a_removed_and_a_changed_shard_are_seen(grown: AuditConfig) -> None:
    write(Path(grown.corpus), 1, 700)
    with pytest.raises(AuditError, match="1 has changed"):
        extend_audit(grown)
    Path(grown.corpus, "1.tar").unlink()
    with pytest.raises(AuditError, match="1 is gone"):
        extend_audit(grown)
    with pytest.raises(AuditError, match="without --extend"):
        extend_audit(AuditConfig(grown.corpus, grown.out + "-nowhere", grown.model, quiet=True))


def test_a_removed_and_a_changed_shard_of_an_earlier_extension_are_seen(extended: AuditConfig) -> None:
    write(Path(extended.corpus), 3, 800)
    with pytest.raises(AuditError, match="3 has changed"):
        extend_audit(extended)
    Path(extended.corpus, "3.tar").unlink()
    with pytest.raises(AuditError, match="3 is gone"):
        extend_audit(extended)
    assert Audit(extended.out).count("shard = '3'") == 30


def test_rows_of_an_extended_audit_are_verified_against_what_it_was_fitted_on(
    extended: AuditConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted: list[list[str]] = []

    def spy(folder: Folder, shards: list[str], *given: Any, **named: Any) -> Any:
        fitted.append(list(shards))
        return prepare_context(folder, shards, *given, **named)

    monkeypatch.setattr("auditor.run.scoring.prepare_context", spy)
    assert run_command_line(["verify", extended.out, "-n", "20"]) == 0
    assert fitted == [["0", "1", "2"]]


def test_an_extension_that_was_stopped_is_read_and_goes_on(grown: AuditConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("auditor.run.extend.score_shards", stop)
        with pytest.raises(KeyboardInterrupt):
            extend_audit(grown)
    left = Audit(grown.out)
    assert left.count() == 150 and left.count("shard = '3' AND similarity IS NULL") == 30
    assert [note for note in left.notes if "not finished" in note] and not [
        note for note in left.notes if "not of" in note
    ]
    manifest = extend_audit(grown)
    assert manifest.state == "complete" and manifest.fitted_on == ["0", "1", "2"]
    assert Audit(grown.out).count("similarity IS NULL AND status = 'ok'") == 0
