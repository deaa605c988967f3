"""Fitted prototypes: u follows h on unseen instances in every geometry, varies, is reproducible, and L_div holds."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from auditor.research.retrieval.analyses import compute_auroc
from model.checkpoint import load_prototype_head
from model.fit_prototypes import (
    FitConfig,
    FitError,
    Target,
    compute_media_uncertainty,
    fit_prototypes,
    measure_uncertainty_fit,
)
from model.prototypes import HeadConfig, PrototypeHead, compute_prototype_overlap
from model.retrieval_target import FitPairs, measure_corpus_similarity, measure_retrieval_entropy
from model.similarity import pool_frames, similarity_matrix
from tests.support.perplexity import compute_log_perplexity

DIM = 128
# Offsets of media and captions along two random directions a and b: (media a, captions a, captions b).
GEOMETRIES = {
    "modality gap": (1.2, 0.4, 1.2),
    "narrow cone with a gap": (4.0, 0.8, 4.0),
    "no gap, mean zero": (0.0, 0.0, 0.0),
    "no gap, one shared cone": (0.7, 0.7, 0.0),
    "negative mean": (0.8, -0.3, 0.6),
}


def fit_vectors(visual: Tensor, text: Tensor, config: HeadConfig | None = None, **settings: Any) -> PrototypeHead:
    return fit_prototypes(FitPairs(visual, text), config, **settings)


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
    head = fit_vectors(train_visual, train_text)
    for u, h, bank in [
        (head.uncertainty_visual(new_visual), measure_corpus_similarity(new_visual, train_text), head.text),
        (head.uncertainty_text(new_text), measure_corpus_similarity(new_text, train_visual), head.visual),
    ]:
        found = measure_uncertainty_fit(u, h)
        assert found.pearson > 0.9
        assert found.high - found.low > 0.3 and found.low > 0.01 and found.high < 0.99
        assert compute_prototype_overlap(bank) < 0.55


def first_hits(visual: Tensor, text: Tensor) -> list[Tensor]:
    """Whether each medium ranks its caption first, and each caption its medium."""
    truth = torch.arange(len(visual))
    return [(visual @ text.T).argmax(dim=dimension) == truth for dimension in (1, 0)]


def auroc(values: Tensor, positive: Tensor) -> float:
    return compute_auroc(values.double().numpy(), positive.numpy())


@pytest.mark.parametrize("geometry", ["modality gap", "no gap, one shared cone", "negative mean"])
def test_u_predicts_which_items_fail_as_well_as_the_perplexity_does(geometry: str) -> None:
    visual, text = corpus(geometry, 1000)
    head = fit_vectors(
        visual, text, HeadConfig(dim=DIM, prototypes=64), target="retrieval", logit_scale=20.0, settings=FitConfig()
    )
    by_h = fit_vectors(visual, text)
    for hit, u, h, perplexity in zip(
        first_hits(visual, text),
        (head.uncertainty_visual(visual), head.uncertainty_text(text)),
        (by_h.uncertainty_visual(visual), by_h.uncertainty_text(text)),
        (compute_log_perplexity(visual, text, 20.0), compute_log_perplexity(text, visual, 20.0)),
        strict=True,
    ):
        assert auroc(u, ~hit) > auroc(perplexity, ~hit) - 0.01
        assert auroc(u, ~hit) > auroc(h, ~hit) + 0.1
        order = u.argsort()[:500], perplexity.argsort()[:500]
        assert 100 * hit[order[0]].float().mean() > 100 * hit[order[1]].float().mean() - 0.5


def test_u_is_stable_between_seeds() -> None:
    """Random vectors have no structure to agree about; on photos it is above .98 (tests.bench.uncertainty)."""
    visual, text = corpus("negative mean", 1000)
    config = HeadConfig(dim=DIM, prototypes=64)
    heads = [fit_vectors(visual, text, config, target="retrieval", logit_scale=20.0, seed=seed) for seed in (0, 1)]
    for u in ([head.uncertainty_visual(visual) for head in heads], [head.uncertainty_text(text) for head in heads]):
        assert torch.corrcoef(torch.stack(u).argsort(dim=1).argsort(dim=1).double())[0, 1] > 0.8


def test_the_retrieval_target_refuses_what_it_cannot_compute() -> None:
    visual, text = corpus("modality gap", 20)
    with pytest.raises(FitError, match="logit scale"):
        fit_vectors(visual, text, target="retrieval")
    with pytest.raises(FitError, match="target h only"):
        fit_vectors(visual, text, target="retrieval", recipe="paper", logit_scale=20.0)
    with pytest.raises(FitError, match="needs pairs, not 20 media and 10 captions"):
        fit_vectors(visual, text[:10], target="retrieval", logit_scale=20.0)


def make_clips(count: int, films: int) -> tuple[FitPairs, Tensor]:
    """Clips of 6 similar frames and 2 padded ones; `films` of them have 3 scenes. Returns which ones."""
    generator = torch.Generator().manual_seed(0)
    scenes, text = corpus("no gap, mean zero", count, seed=3)
    frames = scenes[:, None].repeat(1, 8, 1) + 0.02 * torch.randn(count, 8, DIM, generator=generator)
    is_film = torch.arange(count) < films
    other = torch.randint(count, (2, films), generator=generator)
    frames[:films, 2:4], frames[:films, 4:6] = frames[other[0], 2:4], frames[other[1], 4:6]
    mask = torch.arange(8).expand(count, 8) < 6
    frames[~mask] = 100 * torch.randn(int((~mask).sum()), DIM, generator=generator)  # must not matter
    frames = F.normalize(frames, dim=2)
    return FitPairs(pool_frames(frames, mask), text, frames, mask), is_film


@pytest.mark.parametrize("prototypes", [8, 64])
@pytest.mark.parametrize("target", ["h", "retrieval"])
def test_clips_of_several_scenes_are_uncertain_in_clips_that_were_not_fitted(target: Target, prototypes: int) -> None:
    pairs, is_film = make_clips(600, 60)
    even, odd = torch.arange(0, 600, 2), torch.arange(1, 600, 2)
    config = HeadConfig(dim=DIM, prototypes=prototypes, clip_evidence="frames")
    head = fit_prototypes(pairs.take_pairs(even), config, target=target, logit_scale=20.0)
    by_mean = fit_prototypes(
        pairs.take_pairs(even), replace(config, clip_evidence="mean"), target=target, logit_scale=20.0
    )
    seen, unseen = (compute_media_uncertainty(head, pairs.take_pairs(rows)) for rows in (even, odd))
    assert auroc(seen, is_film[even]) > 0.95
    # These vectors are noise without structure, of which prototypes learn little; see the benchmark for real photos.
    assert (
        auroc(unseen, is_film[odd]) > 0.75 > auroc(by_mean.uncertainty_visual(pairs.visual[odd]), is_film[odd]) + 0.25
    )


def test_padded_frames_never_count_and_images_may_stand_before_clips() -> None:
    pairs, _ = make_clips(80, 20)
    images, captions = corpus("no gap, mean zero", 50, seed=8)
    mixed = replace(pairs, visual=torch.cat([images, pairs.visual]), text=torch.cat([captions, pairs.text]))
    assert mixed.frames is not None and mixed.mask is not None
    noise = torch.where(mixed.mask[..., None], mixed.frames, -mixed.frames)
    for target in ("h", "retrieval"):
        config = HeadConfig(dim=DIM, clip_evidence="frames")
        heads = [
            fit_prototypes(part, config, target=target, logit_scale=20.0)  # type: ignore[arg-type]
            for part in (mixed, replace(mixed, frames=noise))
        ]
        assert heads[0].fingerprint == heads[1].fingerprint
        u = compute_media_uncertainty(heads[0], mixed)
        torch.testing.assert_close(u[:50], heads[0].uncertainty_visual(images))
        torch.testing.assert_close(u[50:], heads[0].uncertainty_visual(pairs.visual, noise, pairs.mask))


def test_the_retrieval_target_equals_a_naive_computation() -> None:
    """Hubs discounted, own partner counted for each pair of its medium, vagueness and disagreement added."""
    pairs, _ = make_clips(40, 10)
    groups = torch.arange(40) // 2 * 2
    pairs = replace(pairs, groups=groups, vagueness=torch.linspace(0, 1, 40))
    assert pairs.frames is not None
    found = measure_retrieval_entropy(pairs, 10.0, torch.Generator().manual_seed(0))
    similarity = similarity_matrix(pairs.visual, pairs.frames, pairs.mask, pairs.text).double()
    own = torch.eye(40, dtype=torch.bool)
    rival = groups[:, None] != groups[None, :]
    hub_text, hub_visual = (
        ((20 * matrix).exp() * rival).sum(dim=0).div(38).log() / 20 for matrix in (similarity, similarity.T)
    )
    for matrix, hub, values in ((similarity, hub_text, found[0]), (similarity.T, hub_visual, found[1])):
        logits = 15 * (matrix - hub / 2)
        mass = logits.exp() * (rival + 2 * own)
        expected = mass.sum(dim=1).log() - (mass * logits).sum(dim=1) / mass.sum(dim=1)
        if values is found[0]:
            q = (15 * (pairs.frames[:, :6].double() @ pairs.text.T.double() - hub_text / 2)).softmax(dim=2)
            mean = q.mean(dim=1)
            expected = expected + 2 * (
                torch.special.entr(mean).sum(dim=1) - torch.special.entr(q).sum(dim=2).mean(dim=1)
            )
        else:
            expected = expected + torch.linspace(0, 1, 40)
        torch.testing.assert_close(values.double(), expected.double(), atol=1e-4, rtol=1e-4)


def test_a_sample_of_candidates_estimates_the_entropy_over_all() -> None:
    pairs = FitPairs(*corpus("modality gap", 3000))
    sampled = measure_retrieval_entropy(pairs, 20.0, torch.Generator().manual_seed(0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("model.retrieval_target.CANDIDATES", 3000)
        whole = measure_retrieval_entropy(pairs, 20.0, torch.Generator().manual_seed(0))
    for part, all_of_it in zip(sampled, whole, strict=True):
        assert torch.corrcoef(torch.stack([part, all_of_it]))[0, 1] > 0.97
        assert abs(float((part - all_of_it).mean())) < 0.1


def test_log_perplexity_is_that_of_the_softmax() -> None:
    visual, text = corpus("no gap, mean zero", 50)
    p = (20 * visual @ text.T).softmax(dim=1).double()
    torch.testing.assert_close(
        compute_log_perplexity(visual, text, 20.0).double(), -(p * p.log()).sum(1), rtol=1e-4, atol=1e-5
    )
    alike = compute_log_perplexity(visual, text[:1].expand(40, -1), 20.0)
    torch.testing.assert_close(alike, torch.full((50,), math.log(40)))


def test_default_scale_and_no_center_if_they_suffice() -> None:
    head = fit_vectors(*corpus("no gap, mean zero", 1000))
    assert (head.config.scale, head.config.center_visual, head.config.center_text) == (100.0, 0.0, 0.0)


def test_the_paper_recipe_is_an_option_and_cannot_follow_a_mean_of_zero() -> None:
    visual, text = corpus("modality gap", 1500)
    head = fit_vectors(visual, text, recipe="paper", settings=FitConfig(200, 256, 1e-2, 1.5))
    assert head.config.scale == 100.0
    assert (
        measure_uncertainty_fit(head.uncertainty_visual(visual), measure_corpus_similarity(visual, text)).pearson > 0.9
    )
    visual, text = corpus("negative mean", 1500)
    head = fit_vectors(visual, text, recipe="paper", settings=FitConfig(200, 256, 1e-2, 1.5))
    assert (
        measure_uncertainty_fit(head.uncertainty_visual(visual), measure_corpus_similarity(visual, text)).pearson < 0.5
    )


def test_the_same_seed_gives_the_same_head() -> None:
    visual, text = corpus("modality gap", 400)
    settings = FitConfig(steps=5, batch=64)
    one, same, other = (fit_vectors(visual, text, seed=seed, settings=settings) for seed in (1, 1, 2))
    assert one.fingerprint == same.fingerprint != other.fingerprint
    paper = [fit_vectors(visual, text, recipe="paper", seed=1, settings=settings).fingerprint for _ in range(2)]
    assert paper[0] == paper[1]


def test_the_diversity_loss_keeps_prototypes_apart() -> None:
    visual, text = corpus("no gap, one shared cone", 1000)
    without = fit_vectors(visual, text, settings=FitConfig(diversity_weight=0.0))
    weighted = fit_vectors(visual, text, settings=FitConfig(diversity_weight=0.2))
    assert compute_prototype_overlap(weighted.text) < compute_prototype_overlap(without.text) - 0.05


@pytest.mark.parametrize("evidence", ["softplus", "relu"])
def test_other_evidence_is_fitted_too(evidence: str) -> None:
    visual, text = corpus("modality gap", 2000)
    head = fit_vectors(visual, text, HeadConfig(dim=DIM, evidence=evidence))
    found = measure_uncertainty_fit(head.uncertainty_text(text), measure_corpus_similarity(text, visual))
    assert found.pearson > 0.85 and found.high - found.low > 0.25


def test_mean_similarity_is_the_mean_of_the_row() -> None:
    visual, text = corpus("modality gap", 50)
    torch.testing.assert_close(measure_corpus_similarity(visual, text[:20]), (visual @ text[:20].T).mean(dim=1))


@pytest.mark.parametrize("target", ["h", "retrieval"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_tiny_corpora_are_fitted_with_more_prototypes_than_instances(count: int, target: Target) -> None:
    visual, text = corpus("modality gap", count)
    config = HeadConfig(dim=DIM, prototypes=64, clip_evidence="frames")
    head = fit_vectors(visual, text, config, target=target, logit_scale=20.0)
    assert torch.isfinite(head.uncertainty_visual(visual)).all() and torch.isfinite(head.uncertainty_text(text)).all()
    clips = FitPairs(visual, text, visual[:, None], torch.ones(count, 1, dtype=torch.bool))
    head = fit_prototypes(clips, config, target=target, logit_scale=20.0)
    torch.testing.assert_close(compute_media_uncertainty(head, clips), head.uncertainty_visual(visual))


def test_identical_instances_get_the_same_middling_u() -> None:
    same = F.normalize(torch.ones(20, 16), dim=1)
    for target in ("h", "retrieval"):
        u = fit_vectors(same, same, target=target, logit_scale=20.0).uncertainty_visual(same)  # type: ignore[arg-type]
        assert u.std() < 1e-6 and 0.3 < u[0] < 0.7


def test_more_prototypes_than_dimensions() -> None:
    visual = F.normalize(torch.randn(200, 4, generator=torch.manual_seed(0)), dim=1)
    head = fit_vectors(visual, visual.roll(1, 0), HeadConfig(dim=4, prototypes=9))
    assert head.visual.shape == (9, 4) and torch.isfinite(head.visual).all()


def test_fitting_works_where_gradients_are_off_and_returns_a_frozen_head() -> None:
    visual, text = corpus("modality gap", 100)
    with torch.no_grad():
        head = fit_vectors(visual.half(), text.half(), settings=FitConfig(steps=2))
    assert not any(parameter.requires_grad for parameter in head.parameters())


def test_what_cannot_be_fitted_is_refused() -> None:
    visual, text = corpus("modality gap", 10)
    with pytest.raises(FitError, match="no embeddings of captions"):
        fit_vectors(visual, text[:0])
    with pytest.raises(FitError, match="NaN"):
        fit_vectors(visual, text * float("nan"))
    with pytest.raises(FitError, match=r"shape \(N, 8\)"):
        fit_vectors(visual, text, HeadConfig(dim=8))
    with pytest.raises(FitError, match="corpus or paper"):
        fit_vectors(visual, text, recipe="other")  # type: ignore[arg-type]


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
        digests = [f"{rows.start + number // 2:016x}" * 2 for number in range(count)]
        columns["kind"], columns["media_digest"] = pa.array(["image"] * count), pa.array(digests)
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
    twice = (part.half().repeat_interleave(2, 0) for part in (visual, text))
    expected = fit_vectors(*twice, HeadConfig(dim=DIM, prototypes=4, clip_evidence="frames"))
    torch.testing.assert_close(head.uncertainty_visual(visual), expected.uncertainty_visual(visual), atol=5e-3, rtol=0)
    assert json.loads((out / "config.json").read_text())["head"]["clip_evidence"] == "frames"
    config = json.loads((out / "config.json").read_text())
    assert config["backbone"] == {"spec": "tiny", "fingerprint": "abc", "stored": False}
    assert run_command_line(["fit", str(tmp_path / "audit"), "--out", str(out), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert all(row["correlation of u with its target"] > 0.5 for row in rows)
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
