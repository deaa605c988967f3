"""Fitted prototypes: u follows h on unseen instances in every geometry, varies, is reproducible, and L_div holds."""

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from auditor.audit_folder import arrow_schema
from auditor.audit_folder.embeddings import build_nullable_vectors
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.manifest import Manifest
from auditor.cli import run_command_line
from model.checkpoint import load_prototype_head
from model.fit_prototypes import FitConfig, FitError, fit_prototypes, measure_corpus_similarity, measure_uncertainty_fit
from model.prototypes import HeadConfig, PrototypeHead, compute_prototype_overlap
from model.similarity import compute_log_perplexity

DIM = 128
# Offsets of media and captions along two random directions a and b: (media a, captions a, captions b).
GEOMETRIES = {
    "modality gap": (1.2, 0.4, 1.2),
    "narrow cone with a gap": (4.0, 0.8, 4.0),
    "no gap, mean zero": (0.0, 0.0, 0.0),
    "no gap, one shared cone": (0.7, 0.7, 0.0),
    "negative mean": (0.8, -0.3, 0.6),
}


def corpus(geometry: str, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Pairs of unit vectors with a decaying spectrum, independent noise, and the offsets of a geometry."""
    generator = torch.Generator().manual_seed(seed)
    spectrum = torch.arange(1, DIM + 1).float() ** -0.5
    shared, noise_visual, noise_text = torch.randn(3, count, DIM, generator=generator) * spectrum
    unit = (shared.norm(dim=1)).mean()
    directions = torch.linalg.qr(torch.randn(DIM, DIM, generator=torch.Generator().manual_seed(99))).Q
    media, captions, captions_other = GEOMETRIES[geometry]
    a, b = directions[0], directions[1]
    visual = (shared + 0.7 * noise_visual) / unit + media * a
    text = (shared + 0.7 * noise_text) / unit + captions * a + captions_other * b
    return F.normalize(visual, dim=1), F.normalize(text, dim=1)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_u_follows_h_on_unseen_instances_in_every_geometry(geometry: str) -> None:
    visual, text = corpus(geometry, 3000)
    train_visual, train_text, new_visual, new_text = visual[:2000], text[:2000], visual[2000:], text[2000:]
    head = fit_prototypes(train_visual, train_text)
    for u, h, bank in [
        (head.uncertainty_visual(new_visual), measure_corpus_similarity(new_visual, train_text), head.text),
        (head.uncertainty_text(new_text), measure_corpus_similarity(new_text, train_visual), head.visual),
    ]:
        found = measure_uncertainty_fit(u, h)
        assert found.pearson > 0.9
        assert found.high - found.low > 0.3 and found.low > 0.01 and found.high < 0.99
        assert compute_prototype_overlap(bank) < 0.55


def test_u_follows_the_perplexity_of_retrieval_where_that_is_the_target() -> None:
    """In this geometry the mean similarity is unrelated to the perplexity."""
    visual, text = corpus("modality gap", 3000)
    head = fit_prototypes(visual[:2000], text[:2000], target="retrieval", logit_scale=20.0)
    by_h = fit_prototypes(visual[:2000], text[:2000])
    wanted = compute_log_perplexity(text[2000:], visual[:2000], 20.0)
    assert measure_uncertainty_fit(head.uncertainty_text(text[2000:]), wanted).pearson > 0.75
    assert measure_uncertainty_fit(by_h.uncertainty_text(text[2000:]), wanted).pearson < 0.3
    with pytest.raises(FitError, match="logit scale"):
        fit_prototypes(visual, text, target="retrieval")
    with pytest.raises(FitError, match="target h only"):
        fit_prototypes(visual, text, target="retrieval", recipe="paper", logit_scale=20.0)


def test_log_perplexity_is_that_of_the_softmax() -> None:
    visual, text = corpus("no gap, mean zero", 50)
    p = (20 * visual @ text.T).softmax(dim=1).double()
    torch.testing.assert_close(
        compute_log_perplexity(visual, text, 20.0).double(), -(p * p.log()).sum(1), rtol=1e-4, atol=1e-5
    )
    alike = compute_log_perplexity(visual, text[:1].expand(40, -1), 20.0)
    torch.testing.assert_close(alike, torch.full((50,), math.log(40)))


def test_default_scale_and_no_center_if_they_suffice() -> None:
    head = fit_prototypes(*corpus("no gap, mean zero", 1000))
    assert (head.config.scale, head.config.center_visual, head.config.center_text) == (100.0, 0.0, 0.0)


def test_the_paper_recipe_is_an_option_and_cannot_follow_a_mean_of_zero() -> None:
    visual, text = corpus("modality gap", 1500)
    head = fit_prototypes(visual, text, recipe="paper", settings=FitConfig(200, 256, 1e-2, 1.5))
    assert head.config.scale == 100.0
    assert (
        measure_uncertainty_fit(head.uncertainty_visual(visual), measure_corpus_similarity(visual, text)).pearson > 0.9
    )
    visual, text = corpus("negative mean", 1500)
    head = fit_prototypes(visual, text, recipe="paper", settings=FitConfig(200, 256, 1e-2, 1.5))
    assert (
        measure_uncertainty_fit(head.uncertainty_visual(visual), measure_corpus_similarity(visual, text)).pearson < 0.5
    )


def test_the_same_seed_gives_the_same_head() -> None:
    visual, text = corpus("modality gap", 400)
    settings = FitConfig(steps=5, batch=64)
    one, same, other = (fit_prototypes(visual, text, seed=seed, settings=settings) for seed in (1, 1, 2))
    assert one.fingerprint == same.fingerprint != other.fingerprint
    paper = [fit_prototypes(visual, text, recipe="paper", seed=1, settings=settings).fingerprint for _ in range(2)]
    assert paper[0] == paper[1]


def test_the_diversity_loss_keeps_prototypes_apart() -> None:
    visual, text = corpus("no gap, one shared cone", 1000)
    without = fit_prototypes(visual, text, settings=FitConfig(diversity_weight=0.0))
    weighted = fit_prototypes(visual, text, settings=FitConfig(diversity_weight=0.2))
    assert compute_prototype_overlap(weighted.text) < compute_prototype_overlap(without.text) - 0.05


@pytest.mark.parametrize("evidence", ["softplus", "relu"])
def test_other_evidence_is_fitted_too(evidence: str) -> None:
    visual, text = corpus("modality gap", 2000)
    head = fit_prototypes(visual, text, HeadConfig(dim=DIM, evidence=evidence))
    found = measure_uncertainty_fit(head.uncertainty_text(text), measure_corpus_similarity(text, visual))
    assert found.pearson > 0.85 and found.high - found.low > 0.25


def test_mean_similarity_is_the_mean_of_the_row() -> None:
    visual, text = corpus("modality gap", 50)
    torch.testing.assert_close(measure_corpus_similarity(visual, text[:20]), (visual @ text[:20].T).mean(dim=1))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_tiny_corpora_are_fitted(count: int) -> None:
    visual, text = corpus("modality gap", count)
    head = fit_prototypes(visual, text, settings=FitConfig(steps=3))
    assert torch.isfinite(head.uncertainty_visual(visual)).all()


def test_identical_instances_get_the_same_middling_u() -> None:
    same = F.normalize(torch.ones(20, 16), dim=1)
    u = fit_prototypes(same, same).uncertainty_visual(same)
    assert u.std() < 1e-6 and 0.3 < u[0] < 0.7


def test_more_prototypes_than_dimensions() -> None:
    visual = F.normalize(torch.randn(200, 4, generator=torch.manual_seed(0)), dim=1)
    head = fit_prototypes(visual, visual.roll(1, 0), HeadConfig(dim=4, prototypes=9))
    assert head.visual.shape == (9, 4) and torch.isfinite(head.visual).all()


def test_fitting_works_where_gradients_are_off_and_returns_a_frozen_head() -> None:
    visual, text = corpus("modality gap", 100)
    with torch.no_grad():
        head = fit_prototypes(visual.half(), text.half(), settings=FitConfig(steps=2))
    assert not any(parameter.requires_grad for parameter in head.parameters())


def test_what_cannot_be_fitted_is_refused() -> None:
    visual, text = corpus("modality gap", 10)
    with pytest.raises(FitError, match="no embeddings of captions"):
        fit_prototypes(visual, text[:0])
    with pytest.raises(FitError, match="NaN"):
        fit_prototypes(visual, text * float("nan"))
    with pytest.raises(FitError, match=r"shape \(N, 8\)"):
        fit_prototypes(visual, text, HeadConfig(dim=8))
    with pytest.raises(FitError, match="corpus or paper"):
        fit_prototypes(visual, text, recipe="other")  # type: ignore[arg-type]


def write_audit(folder: Path, visual: Tensor, text: Tensor) -> None:
    """Write a manifest and two embeddings files: each medium has two captions, and some rows have no vectors."""
    audit = Folder(folder)
    model = {"spec": "tiny", "fingerprint": "abc", "dim": visual.shape[1], "logit_scale": 20.0, "frames": 1}
    Manifest({"spec": "", "shards": 2, "root": None, "carry": []}, model, settings={"score": {}}).save(audit)
    for shard, rows in (("a", slice(0, 150)), ("b", slice(150, None))):
        media, captions = visual[rows].numpy(), text[rows].numpy().repeat(2, axis=0)
        count = len(captions) + 1  # and one row that could not be decoded
        first, present = np.arange(count) % 2 == 0, np.arange(count) < count - 1
        columns = {
            field.name: pa.nulls(count, field.type) for field in arrow_schema.build_embeddings_schema(visual.shape[1])
        }
        columns["status"] = pa.array(["ok"] * (count - 1) + ["corrupt"])
        columns["kind"], columns["media_digest"] = pa.array(["image"] * count), pa.array(["0" * 32] * count)
        columns["caption_index"] = pa.array(np.arange(count) % 2, pa.int32())
        columns["visual"], columns["text"] = (
            build_nullable_vectors(media, first & present),
            build_nullable_vectors(captions, present),
        )
        audit.write_table(f"embeddings/{shard}.parquet", pa.table(columns))


def test_the_command_saves_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    visual, text = corpus("modality gap", 300)
    write_audit(tmp_path / "audit", visual, text)
    out = tmp_path / "head"
    assert (
        run_command_line(
            ["fit", str(tmp_path / "audit"), "--out", str(out), "--target", "h", "--prototypes", "4", "--json"]
        )
        == 0
    )
    rows = json.loads(capsys.readouterr().out)
    assert [(row["modality"], row["instances"]) for row in rows] == [("visual", 600), ("text", 600)]
    assert all(row["correlation of u with h"] > 0.9 for row in rows)
    head = load_prototype_head(out)
    assert head.config.prototypes == 4
    expected = fit_prototypes(visual.half(), text.half().repeat_interleave(2, 0), HeadConfig(dim=DIM, prototypes=4))
    torch.testing.assert_close(head.uncertainty_visual(visual), expected.uncertainty_visual(visual), atol=1e-3, rtol=0)
    config = json.loads((out / "config.json").read_text())
    assert config["backbone"] == {"spec": "tiny", "fingerprint": "abc", "stored": False}
    assert run_command_line(["fit", str(tmp_path / "audit"), "--out", str(out), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert all(row["correlation of u with log perplexity"] > 0.5 for row in rows)
    assert json.loads((out / "config.json").read_text())["extra"]["target"] == "retrieval"


def test_the_command_learns_from_a_sample_of_a_large_audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_audit(tmp_path / "audit", *corpus("modality gap", 300))
    assert (
        run_command_line(["fit", str(tmp_path / "audit"), "--out", str(tmp_path / "head"), "--pairs", "70", "--json"])
        == 0
    )
    assert [row["instances"] for row in json.loads(capsys.readouterr().out)] == [70, 70]


def test_the_command_says_what_is_wrong_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in [
        ([str(tmp_path / "none")], "is not an audit"),
        ([str(tmp_path / "empty")], "nothing to fit"),
        ([str(tmp_path / "empty"), "--evidence", "tanh"], "evidence must be one of"),
    ]:
        (tmp_path / "empty").mkdir(exist_ok=True)
        model = {"spec": "x", "fingerprint": "y", "dim": 8, "logit_scale": 20.0, "frames": 1}
        corpus = {"spec": "", "shards": 0, "root": None, "carry": []}
        Manifest(corpus, model, settings={"score": {}}, state="complete").save(Folder(tmp_path / "empty"))
        assert run_command_line(["fit", *arguments, "--out", str(tmp_path / "head")]) == 1
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert not (tmp_path / "head").exists()


def test_centers_are_part_of_a_head(tmp_path: Path) -> None:
    head = PrototypeHead(HeadConfig(dim=8, center_visual=0.3, center_text=-0.2))
    x = F.normalize(torch.randn(3, 8, generator=torch.manual_seed(0)), dim=1)
    torch.testing.assert_close(head.logits_visual(x), 100 * (x @ F.normalize(head.text, dim=1).T - 0.3))
    torch.testing.assert_close(head.logits_text(x), 100 * (x @ F.normalize(head.visual, dim=1).T + 0.2))
