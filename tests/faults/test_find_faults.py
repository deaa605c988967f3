"""All faults of an audit, found by the command and the library."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from auditor import Audit
from auditor.audit_folder.fault_records import FILE, Fault, build_fault_table, read_faults
from auditor.audit_folder.folder import Folder
from auditor.cli import cli, run_command_line
from auditor.faults import corpus_window
from auditor.faults.find_faults import build_samples_condition, compute_shard_band, find_patterns
from auditor.faults.group_faults import find_group_faults
from auditor.faults.shifted_stretches import compute_band
from tests.support.planted import make_captions, make_embeddings, write_planted


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of four shards with a shift across two of them, a reversed stretch, a bad shard and boilerplate."""
    folder = tmp_path_factory.mktemp("planted") / "audit"
    generator = np.random.default_rng(0)
    source = np.arange(1600)
    source[390:420] -= 3
    source[500:530] = source[500:530][::-1]
    noisy = generator.choice(np.arange(1200, 1600), 160, replace=False)
    source[noisy] = np.roll(noisy, 1)
    captions = make_captions(1600)
    captions[900:940] = ["Click HERE, no. 1!", "click here, no 23"] * 20
    write_planted(folder, *make_embeddings(1600), shards=4, source=source, captions=captions, broken=[7, 395])
    return folder


@pytest.fixture(scope="module")
def faults(planted: Path) -> list[Fault]:
    return Audit(planted).faults()


def test_the_planted_faults_are_found_and_nothing_else(planted: Path, faults: list[Fault]) -> None:
    shift, block, shard, caption = faults
    assert (shift.kind, shift.offset, shift.shard, shift.rows) == ("shift", -3, "00000", 30)
    assert (shift.first_key, shift.last_key) == ("s000390", "s000419")
    assert (block.kind, block.pattern, block.first_key, block.last_key) == ("block", "reversed", "s000500", "s000529")
    assert (shard.kind, shard.pattern, shard.shard) == ("shard", "mismatched", "00003")
    assert (caption.kind, caption.pattern, caption.rows) == ("caption", "boilerplate", 40)
    assert read_faults(Folder(planted)) == faults


def test_the_command_prints_objects_with_all_fields(planted: Path) -> None:
    done = CliRunner().invoke(cli, ["faults", str(planted), "--json"], catch_exceptions=False)
    rows = json.loads(done.stdout)
    wanted = {"kind", "shard", "first_key", "last_key", "offset", "rows", "p_value", "sentence"}
    assert len(rows) == 4 and all(wanted <= set(row) for row in rows)
    assert "30 samples, s000390 to s000419, belong to the medium 3 places earlier" in rows[0]["sentence"]


def test_they_are_findings_with_exactly_their_rows(planted: Path, faults: list[Fault]) -> None:
    audit = Audit(planted)
    keys = [
        audit.sql(f"SELECT key FROM samples WHERE {fault.where} ORDER BY key")["key"].to_pylist() for fault in faults
    ]
    assert keys[0] == [f"s{number:06d}" for number in range(390, 420)]  # of two shards
    assert keys[1] == [f"s{number:06d}" for number in range(500, 530)]
    assert len(keys[2]) == audit.count("shard = '00003' AND mismatch") > 100
    assert keys[3] == [f"s{number:06d}" for number in range(900, 940)]
    findings = {finding.name: finding for finding in audit.findings()}
    assert (findings["shift"].rows, findings["block"].rows) == (30, 30)
    assert faults[0].sentence[1:] in findings["shift"].meaning
    assert findings["shard"].rows == len(keys[2]) and findings["boilerplate"].rows <= 40


def test_a_condition_holds_for_keys_in_any_order(planted: Path) -> None:
    database = Audit(planted).database
    everything = build_samples_condition(database, "00001", range(400))
    assert everything == "shard = '00001'"
    apart = build_samples_condition(database, "00001", (3, 7))
    assert apart == "shard = '00001' AND key IN ('s000403', 's000407')"


def test_other_columns_can_be_compared(planted: Path) -> None:
    assert find_group_faults(Audit(planted).database, "topic") == []
    assert run_command_line(["faults", str(planted), "--by", "nothing"]) == 1


def test_columns_without_values_and_with_fractions_can_be_compared(planted: Path) -> None:
    audit = Audit(planted)
    assert find_group_faults(audit.database, "width") == []  # all empty
    found = [fault for fault in audit.faults(by="similarity") if fault.kind == "shard"]
    assert found and all(fault.shard is None and " to " in (fault.value or "") for fault in found)


def test_what_is_known_of_shards_and_captions_is_told_in_numbers(faults: list[Fault]) -> None:
    *_, shard, caption = (fault.to_dict() for fault in faults)
    assert shard["value"] == "00003" and shard["low"] < shard["share"] < shard["high"]
    assert 2 * shard["usual"] <= shard["low"]
    assert abs(shard["share"] - 0.4) < 0.1
    assert caption["likeness"] == "normalised" and caption["share"] == 40 / 1600 and caption["spread"] > 0.7


def test_faults_of_an_earlier_version_are_read(tmp_path: Path) -> None:
    old = build_fault_table([Fault("shift", "shift", "a", "x", "y", 1, 8, 0.001, "words")]).select(list(range(9)))
    Folder(tmp_path).write_table(FILE, old)
    (found,) = read_faults(Folder(tmp_path)) or []
    assert found.sentence == "words" and found.share is None


def test_a_shard_is_looked_at_with_its_neighbours(planted: Path) -> None:
    """The band of a shard equals its part of the band of the whole corpus."""
    database = Audit(planted).database
    patterns = find_patterns(database)
    folder = Folder(planted)
    scenes = [corpus_window.read_window(folder, shard).samples for shard in patterns.shards]
    whole = compute_band(
        corpus_window.concatenate_samples(scenes), patterns.calibration.reference, patterns.calibration.evidence
    )
    parts = [
        compute_shard_band(folder, patterns.shards, i, patterns.calibration, scene) for i, scene in enumerate(scenes)
    ]
    assert np.allclose(np.concatenate(parts), whole, atol=1e-4)


def test_shards_shorter_than_the_reach_are_looked_at_with_both_neighbours(tmp_path: Path) -> None:
    write_planted(tmp_path, *make_embeddings(400, 8), shards=7, broken=[60, 61, 200])
    folder = Folder(tmp_path)
    patterns = find_patterns(Audit(tmp_path).database)
    scenes = [corpus_window.read_window(folder, shard).samples for shard in patterns.shards]
    assert {len(scene) for scene in scenes} == {57, 58}
    learned = patterns.calibration.reference, patterns.calibration.evidence
    for i, scene in enumerate(scenes):
        near = corpus_window.concatenate_samples(scenes[max(0, i - 1) : i + 2])
        lead = len(scenes[i - 1]) if i else 0
        expected = compute_band(near, *learned)[lead : lead + len(scene)]
        found = compute_shard_band(folder, patterns.shards, i, patterns.calibration, scene)
        assert np.allclose(found, expected, atol=1e-4)


def test_a_sound_corpus_has_no_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_planted(tmp_path / "audit", *make_embeddings(600, 3), shards=3)
    assert run_command_line(["faults", str(tmp_path / "audit")]) == 0
    assert "no faults found" in capsys.readouterr().out
    assert (tmp_path / "audit" / FILE).exists()


def test_a_shard_with_the_captions_of_another_is_named(tmp_path: Path) -> None:
    source = np.arange(1000)
    source[200:400] = source[600:800]
    write_planted(tmp_path / "audit", *make_embeddings(1000, 4), shards=5, source=source)
    found = [fault for fault in Audit(tmp_path / "audit").faults() if fault.kind == "block"]
    assert [(fault.pattern, fault.shard) for fault in found] == [("elsewhere", "00001")]
    assert "media of shard 00003" in found[0].sentence


def test_captions_in_no_order_are_scattered_not_nowhere(tmp_path: Path) -> None:
    """Most captions of every shard belong to media of all shards, so there is no sound shard to compare with."""
    generator = np.random.default_rng(3)
    source = np.where(generator.random(600) < 0.8, generator.permutation(600), np.arange(600))
    write_planted(tmp_path / "audit", *make_embeddings(600, 9), shards=3, source=source)
    found = [fault for fault in Audit(tmp_path / "audit").faults() if fault.kind == "block"]
    assert {fault.pattern for fault in found} == {"scattered"} and {fault.p_value for fault in found} == {None}


def test_captions_of_another_corpus_belong_nowhere(tmp_path: Path) -> None:
    visual, text = make_embeddings(1000, 77)
    source = np.arange(900)
    source[400:500] = np.arange(900, 1000)
    write_planted(tmp_path / "audit", visual[:900], text[source], shards=9)
    found = [fault for fault in Audit(tmp_path / "audit").faults() if fault.kind == "block"]
    assert [(fault.pattern, fault.shard) for fault in found] == [("nowhere", "00004")]


def test_sorted_captions_are_told_from_mixed_up_ones(tmp_path: Path) -> None:
    captions = [f"{name} there" for name in make_captions(600)]
    mixed = np.random.default_rng(1).permutation(600)
    source = np.arange(600)
    source[200:400] = 200 + np.argsort([captions[i] for i in mixed[200:400]])
    visual, text = make_embeddings(600, 13)
    write_planted(tmp_path / "audit", visual, text, shards=3, source=source, captions=[captions[i] for i in mixed])
    (found,) = [fault for fault in Audit(tmp_path / "audit").faults() if fault.kind == "block"]
    assert (found.pattern, found.shard) == ("sorted", "00001") and "alphabetical order" in found.sentence


def test_bad_input_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few, bare = tmp_path / "few", tmp_path / "bare"
    write_planted(few, *make_embeddings(19, 5))
    write_planted(bare, *make_embeddings(60, 6))
    for file in (bare / "embeddings").iterdir():
        file.unlink()
    for audit, expected in ((few, "fewer than 20"), (bare, "has no embeddings"), (tmp_path / "none", "not an audit")):
        for command in (["faults", str(audit)], ["repair", str(audit), "--out", str(tmp_path / "repairs")]):
            assert run_command_line(command) == 1
            said = capsys.readouterr().err
            assert expected in said and said.count("\n") <= 2, said
