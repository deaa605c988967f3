"""Scoring again, and being killed meanwhile, never leaves a mixed audit that is marked complete."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from auditor.audit_folder.audit_files import find_audit_files, list_audit_notes
from auditor.audit_folder.embeddings import name_embeddings_file
from auditor.audit_folder.folder import Folder
from auditor.cli import run_command_line
from auditor.run.audit_config import AuditConfig
from auditor.run.run_audit import run_audit
from auditor.sweep.sweep_config import SweepConfig
from tests.support.corpora import write_corpus
from tests.support.kill_points import folder_after_kill, kill_everywhere


@pytest.fixture(scope="module")
def made(random_model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an audit of three shards and another head for it."""
    place = tmp_path_factory.mktemp("made")
    corpus = write_corpus(tmp_path_factory.mktemp("corpus"), shards=2, size=6)
    sweep = SweepConfig(frames=4, batch_size=8, decoders=1)
    run_audit(AuditConfig(str(corpus), str(place / "audit"), random_model, quiet=True, sweep=sweep))
    assert run_command_line(["fit", str(place / "audit"), "--out", str(place / "head"), "--prototypes", "5"]) == 0
    return place


def scores(audit: Path) -> pa.Table:
    folder = Folder(audit)
    return pa.concat_tables(
        [folder.read_table(f"samples/{name}.parquet") for name in folder.names("samples", ".parquet")]
    )


def test_killed_at_any_file_operation_it_says_so_and_finishes_next_time(made: Path, tmp_path: Path) -> None:
    before = scores(made / "audit")
    killed = kill_everywhere(
        made, tmp_path, "auditor.run.rescore", "score", "{}/audit", "--model", "{}/head", "--quiet"
    )
    after = scores(killed[-1].folder / "audit")
    assert len(killed) > 10 and not after.equals(before)
    for one in killed:
        left = folder_after_kill(one.folder) / "audit"
        whole = [scores(left).equals(state) for state in (before, after)]
        assert any(whole) or list_audit_notes(find_audit_files(left)), one
        assert (one.next_exit, scores(one.folder / "audit").equals(after)) == (0, True), one
        assert not [*one.folder.rglob(".part-*")], one


def test_a_reader_of_a_half_scored_audit_is_told(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from auditor.audit_folder.manifest import Manifest
    from auditor.run.rescore import record_intent
    from auditor.score.score_config import ScoreConfig

    folder = Folder(made / "audit")
    kept = Manifest.load(folder)
    try:
        record_intent(folder, Manifest.load(folder), "other/head", ScoreConfig())
        (note,) = list_audit_notes(find_audit_files(made / "audit"))
        assert "scored again with" in note and "other/head" in note
        assert run_command_line(["summary", str(made / "audit")]) == 0
        assert "scored again" in capsys.readouterr().err
    finally:
        kept.save(folder)


def test_what_is_not_given_stays_as_it_was(made: Path, tmp_path: Path) -> None:
    import shutil

    from auditor.audit_folder.manifest import Manifest

    audit = tmp_path / "audit"
    shutil.copytree(made / "audit", audit)
    assert run_command_line(["score", str(audit), "--near-duplicate", "0.9999", "--prototypes", "3", "--quiet"]) == 0
    assert run_command_line(["score", str(audit), "--prototypes", "4", "--quiet"]) == 0
    settings = Manifest.load(Folder(audit)).settings["score"]
    assert (settings["near_duplicate"], settings["prototypes"]) == (0.9999, 4)


def test_the_rule_of_duplicates_is_printed_stored_and_changed_without_a_sweep(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import shutil

    from auditor.audit_folder.manifest import Manifest

    audit = tmp_path / "audit"
    shutil.copytree(made / "audit", audit)
    assert run_command_line(["summary", str(audit)]) == 0
    rule = Manifest.load(Folder(audit)).duplicates
    assert f"pixels that agree by {rule['agreement']:.2f}" in capsys.readouterr().out
    assert run_command_line(["score", str(audit), "--copy-agreement", "0", "--near-duplicate", "0.97", "--quiet"]) == 0
    assert "or a cosine of 0.970 (no pixels compared)" in capsys.readouterr().out
    assert Manifest.load(Folder(audit)).duplicates["agreement"] is None
    assert run_command_line(["score", str(audit), "--copy-agreement", "0.8", "--quiet"]) == 0
    assert "pixels that agree by 0.80 (compared from cosine 0.97 up)" in capsys.readouterr().out


def test_a_temperature_changes_negclip_loss_only(made: Path, tmp_path: Path) -> None:
    import shutil

    from auditor.audit_folder.manifest import Manifest

    audit = tmp_path / "audit"
    shutil.copytree(made / "audit", audit)
    assert run_command_line(["score", str(audit), "--quiet"]) == 0
    before = scores(audit)
    assert run_command_line(["score", str(audit), "--temperature", "50", "--quiet"]) == 0
    after, manifest = scores(audit), Manifest.load(Folder(audit))
    assert manifest.settings["score"]["temperature"] == 50
    assert manifest.statistics["image"]["temperature"] == 50
    changed = [name for name in after.column_names if not after[name].equals(before[name])]
    assert changed == ["similarity_normalised"]
    # At a high temperature, the log-mean-exp of the similarities to the other pairs is their mean.
    images = after.filter(pc.and_(pc.equal(after["kind"], "image"), pc.equal(after["status"], "ok")))
    stored = pa.concat_tables(
        [Folder(audit).read_table(name_embeddings_file(f"{shard:05}")) for shard in range(2)]
    ).filter(pc.field("uid").isin(images["uid"]))
    assert stored["uid"].equals(images["uid"])
    visual, text = (np.stack(stored[name].to_numpy()).astype(np.float64) for name in ("visual", "text"))
    similarity = visual @ text.T
    key = images["key"].to_numpy()
    other = key[:, None] != key
    mean = [(similarity * other).sum(axis=axis) / other.sum(axis=axis) for axis in (0, 1)]
    expected = similarity.diagonal() - (mean[0] + mean[1]) / 2
    assert np.allclose(images["similarity_normalised"].to_numpy(), expected, atol=1e-3)


def test_a_temperature_of_zero_is_refused(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["score", str(made / "audit"), "--temperature", "0"]) == 2
    assert "--temperature" in capsys.readouterr().err
