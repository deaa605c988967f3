"""Repairs are right as often as their confidence says, and none is below the requested confidence."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from auditor import Audit
from auditor.cli import run_command_line
from auditor.faults.repair import CaptionMove, Repair, _resolve_conflicts, compute_posterior
from auditor.vectors import Ints
from tests.support.planted import make_embeddings, write_planted


def write_permuted(folder: Path, noise: float) -> Ints:
    """Write 1,000 samples, 500 of them permuted and 20 shifted; returns where each caption belongs."""
    source = np.arange(1000)
    source[500:] = np.random.default_rng(0).permutation(source[500:])
    source[100:120] += 4
    source[[300, 301]] = [301, 300]
    write_planted(folder, *make_embeddings(1000, 7, noise=noise), shards=2, source=source)
    return source


def check_repairs(repairs: list[Repair], source: Ints) -> list[bool]:
    return [bool(source[int(repair.key[1:])] == int(repair.new_key[1:])) for repair in repairs]


def test_the_command_lists_what_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, listed = write_permuted(tmp_path / "audit", noise=1.2), tmp_path / "list.parquet"
    command = ["repair", str(tmp_path / "audit"), "--out", str(tmp_path / "out"), "--parquet", str(listed)]
    assert run_command_line(command) == 0
    assert "captions to move" in capsys.readouterr().out
    table = pq.read_table(tmp_path / "out" / "repairs.parquet")
    assert table.equals(pq.read_table(listed))
    repairs = [Repair(**row) for row in table.to_pylist()]
    assert min(repair.confidence for repair in repairs) >= 0.9
    assert len(repairs) >= 0.9 * (source != np.arange(1000)).sum()
    assert np.mean(check_repairs(repairs, source)) >= 0.98
    assert {"shift", "exchanged", "permuted"} <= {repair.pattern for repair in repairs}
    assert len({(repair.new_shard, repair.new_key) for repair in repairs}) == len(repairs)


def test_probabilities_hold_where_the_model_is_weak(tmp_path: Path) -> None:
    source = write_permuted(tmp_path / "audit", noise=2.4)
    repairs = Audit(tmp_path / "audit").repairs(confidence=0.5)
    wrong = ~np.array(check_repairs(repairs, source))
    assert len(repairs) > 50
    assert abs(wrong.mean() - np.mean([1 - repair.confidence for repair in repairs])) < 0.1
    assert all(repair.confidence >= 0.5 for repair in repairs)


def test_a_sound_corpus_is_left_alone(tmp_path: Path) -> None:
    write_planted(tmp_path / "audit", *make_embeddings(600, 8), shards=2)
    assert Audit(tmp_path / "audit").repairs() == []


def test_no_medium_gets_the_captions_of_two() -> None:
    moves = [CaptionMove(1, 5, "shift", 0.9), CaptionMove(2, 5, "permuted", 0.95), CaptionMove(3, 6, "shift", 0.9)]
    assert _resolve_conflicts(moves) == [moves[1], moves[2]]


def test_posterior_is_bayes() -> None:
    assert compute_posterior(0.5, 0.0) == pytest.approx(0.5)
    assert compute_posterior(0.9, np.log(2)) == pytest.approx(0.9 * 2 / (0.9 * 2 + 0.1))


def test_a_confidence_that_is_none_is_refused(tmp_path: Path) -> None:
    assert run_command_line(["repair", str(tmp_path), "--out", "x", "--confidence", "2"]) == 2
    assert run_command_line(["repair", str(tmp_path)]) == 2
