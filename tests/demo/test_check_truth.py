"""Comparison of a real audit of a small generated corpus with the planted defects."""

import json
from typing import Any

import numpy as np
import pytest

from auditor.cli import run_command_line
from auditor.demo.check_truth import DemoFindings, compare_with_truth, join_truth
from auditor.errors import AuditorError
from auditor.python_api import Audit
from tests.support.tiny import SEED, SIZE, tiny


@pytest.fixture(scope="module")
def findings() -> DemoFindings:
    with Audit(tiny().audit) as audit:
        return compare_with_truth(audit, tiny().truth)


def test_every_row_of_the_audit_has_its_truth() -> None:
    with Audit(tiny().audit) as audit:
        assert len(join_truth(audit, tiny().truth)) == len(tiny().truth) == audit.count()


@pytest.mark.parametrize(
    "defect", ["undecodable", "truncated", "missing_caption", "missing_media", "duplicate_key", "duplicate_media"]
)
def test_defects_that_need_no_model_are_all_found(findings: DemoFindings, defect: str) -> None:
    found = next(d for d in findings.defects if d.defect == defect)
    assert found.planted >= 1
    assert found.recall == 1.0


def test_sound_rows_have_no_error_status(findings: DemoFindings) -> None:
    for sign in findings.signs:
        if sign.sign.startswith("status"):
            assert sign.precision == 1.0


def test_clips_of_several_scenes_are_ambiguous_and_sound_media_are_not(findings: DemoFindings) -> None:
    several = next(d for d in findings.defects if d.defect == "multi_scene")
    sign = next(s for s in findings.signs if s.sign == several.sign == "ambiguous_visual")
    assert several.planted >= 3 and several.recall == 1.0 and sign.sound == 0


def test_a_briefly_trained_model_tells_swapped_and_vague_captions_apart(findings: DemoFindings) -> None:
    assert findings.auroc["swapped"]["p_mismatch"] > 0.9
    assert findings.auroc["vague"]["ambiguity_text"] > 0.9


def test_the_share_of_mismatched_pairs_is_estimated(findings: DemoFindings) -> None:
    image = next(noise for noise in findings.noise if noise.kind == "image")
    assert 0.06 < image.planted < 0.1
    assert abs(image.estimated - image.planted) < 0.06


def test_the_truth_of_another_corpus_is_refused() -> None:
    with Audit(tiny().audit) as audit, pytest.raises(AuditorError, match="differ in 1 rows"):
        compare_with_truth(audit, tiny().truth[1:])


def test_the_command_goes_on_with_a_finished_demo(capsys: pytest.CaptureFixture[str], findings: DemoFindings) -> None:
    """The folder of the fixture is a quick demo with the same settings: nothing is drawn, trained or swept again."""
    out = tiny().config.out
    kept = [path for part in ("corpus", "model/best", "audit/embeddings") for path in (out / part).rglob("*.*")]
    before = {path: path.stat().st_mtime_ns for path in kept}
    assert {".tar", ".safetensors", ".parquet"} <= {path.suffix for path in kept}
    arguments = ["--size", str(SIZE), "--seed", str(SEED), "--quick", "--quiet", "--json"]
    assert run_command_line(["demo", "--out", str(out), *arguments]) == 0
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert printed["defects"] == json.loads(json.dumps(findings.to_dict()["defects"]))
    assert {path: path.stat().st_mtime_ns for path in kept} == before
    assert (out / "report.html").read_text(encoding="utf-8").startswith("<!")


def test_other_settings_in_the_same_folder_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert tiny().shards
    assert run_command_line(["demo", "--out", str(tiny().config.out), "--size", "999", "--quiet"]) == 1
    assert f"size {SIZE} and seed {SEED}" in capsys.readouterr().err


def above(first: np.ndarray, second: np.ndarray) -> float:  # type: ignore[type-arg]
    """Probability that a value of the first array is above one of the second."""
    return float((first[:, None] > second[None, :]).mean())


@pytest.mark.parametrize("measure", ["ambiguity_visual", "matches_visual", "frame_spread"])
def test_clips_of_several_scenes_are_more_ambiguous(measure: str) -> None:
    """They fit more captions, and their frames agree less with each of them."""
    truth = {(row["key"], row["caption_index"]): row["defect"] for row in tiny().truth}
    with Audit(tiny().audit) as audit:
        rows = audit.sql("SELECT * FROM samples WHERE kind = 'video' AND status = 'ok'").to_pylist()
    several = [row[measure] for row in rows if truth[row["key"], row["caption_index"]] == "multi_scene"]
    single = [row[measure] for row in rows if truth[row["key"], row["caption_index"]] is None]
    assert len(several) >= 3 and len(single) >= 20
    assert above(np.array(several), np.array(single)) > 0.8
