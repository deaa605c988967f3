"""The objective: chunks against whole batches, weights, false negatives and the running target."""

from pathlib import Path

import pytest
import torch

from auditor.research.train.training_run import build_learner
from model.losses import info_nce
from model.training.objective import (
    Learner,
    TrainingPairs,
    add_gradient,
    compute_objective,
    encode_rows,
    mask_false_negatives,
)
from model.training.trainable import tokenize
from model.training.training_processes import ProcessGroup
from model.training.training_state import collect_parameters
from model.training.uncertainty_targets import CorpusTarget, RetrievalTarget
from tests.support.training import make_tiny_config, write_model_config

pytestmark = pytest.mark.usefixtures("one_thread")


def make_pairs(learner: Learner, count: int = 10, seed: int = 0) -> TrainingPairs:
    """Clips of one to three frames with captions of several lengths; two captions belong to one medium."""
    generator = torch.Generator().manual_seed(seed)
    captions = [" ".join(["red", "over", "blue", "and", "green"][: 1 + i % 5]) for i in range(count)]
    numbers = torch.arange(count)
    numbers[3] = numbers[7]
    return TrainingPairs(
        pixels=torch.randint(0, 256, (count, 3, 16, 16, 3), generator=generator).byte(),
        mask=torch.arange(3) < torch.tensor([1 + i % 3 for i in range(count)])[:, None],
        tokens=tokenize(learner.backbone, captions, 12),
        numbers=numbers,
        weights=torch.rand(count, generator=generator),
    )


def gradients(learner: Learner, pairs: TrainingPairs, chunk: int) -> dict[str, torch.Tensor]:
    for parameter in collect_parameters(learner).values():
        parameter.grad = None
    add_gradient(learner, pairs, ProcessGroup(), seed=1, chunk=chunk)
    return {name: p.grad.clone() for name, p in collect_parameters(learner).items() if p.grad is not None}


@pytest.mark.parametrize("layers", [0, 2])
@pytest.mark.parametrize("target", ["corpus", "paper", "retrieval", "released"])
def test_chunks_give_the_gradient_of_the_whole_batch(tmp_path: Path, target: str, layers: int) -> None:
    learner = build_learner(make_tiny_config(tmp_path, target=target, temporal_layers=layers))
    pairs = make_pairs(learner)
    whole = gradients(learner, pairs, chunk=0)
    assert set(whole) == set(collect_parameters(learner))
    for chunk in (1, 3, 4):
        if learner.target is not None:
            for buffer in learner.target.buffers():
                buffer.zero_()  # forget the batch before
        chunked = gradients(learner, pairs, chunk)
        for name, expected in whole.items():
            torch.testing.assert_close(chunked[name], expected, rtol=1e-3, atol=2e-6, msg=name)
    assert whole["backbone.visual.conv1.weight"].abs().max() > 1e-4


def test_the_released_loss_sees_padded_frames_and_the_papers_does_not(tmp_path: Path) -> None:
    """The similarity of each pair by hand: the best of all slots, where padding is a picture of the mean color."""
    learner = build_learner(make_tiny_config(tmp_path, target="released", temporal_layers=1, frames=5))
    pairs, backbone = make_pairs(learner), learner.backbone
    assert backbone.temporal is not None
    with torch.no_grad():
        embedded = encode_rows(learner, pairs, slice(None), 0)
        assert embedded.frames.shape[:2] == (10, 5)
        blank = backbone.model.encode_image(torch.zeros(1, 3, 16, 16))[0]
        for row, valid in zip(embedded.frames, pairs.mask, strict=True):
            torch.testing.assert_close(row[valid.sum() :], blank.expand(5 - int(valid.sum()), -1))
        total, terms = compute_objective(learner, pairs, embedded, ProcessGroup())
        cosines = torch.zeros(10, 10)
        for i, count in enumerate(pairs.mask.sum(dim=1).tolist()):
            clip = backbone.temporal.pool(embedded.frames[i : i + 1, :count], torch.ones(1, count))[0]
            units = torch.nn.functional.normalize(torch.stack([*embedded.frames[i, :count], blank]), dim=-1)
            cosines[i] = (embedded.text @ clip + (embedded.text @ units.T).amax(dim=1)) / 2
        logits = cosines * learner.log_scale.exp()
        assert terms.info_nce == pytest.approx(info_nce(logits, pairs.weights).item(), rel=1e-4)
        assert total.item() == pytest.approx(terms.info_nce + terms.uncertainty + terms.diversity, rel=1e-5)
    plain = build_learner(make_tiny_config(tmp_path, target="paper", temporal_layers=1, frames=5))
    with torch.no_grad():
        assert not encode_rows(plain, pairs, slice(None), 0).frames[~pairs.mask].any()


class Saved:
    """A tensor that autograd stores for the backward pass, counted while it exists."""

    alive = peak = 0

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.size = tensor, tensor.numel() * tensor.element_size()
        Saved.alive += self.size
        Saved.peak = max(Saved.peak, Saved.alive)

    def __del__(self) -> None:
        Saved.alive -= self.size


def test_chunks_keep_the_activations_of_one_chunk_only(tmp_path: Path) -> None:
    learner = build_learner(make_tiny_config(tmp_path))
    pairs = make_pairs(learner, count=64)
    peaks = {}
    for chunk in (0, 8):
        Saved.alive = Saved.peak = 0
        with torch.autograd.graph.saved_tensors_hooks(Saved, lambda saved: saved.tensor):
            add_gradient(learner, pairs, ProcessGroup(), seed=1, chunk=chunk)
        peaks[chunk] = Saved.peak
    assert peaks[8] < peaks[0] / 5  # an eighth, and the loss itself


def test_random_layers_do_the_same_in_both_passes(tmp_path: Path) -> None:
    make_tiny_config(tmp_path)
    model = write_model_config(tmp_path, {"vision_cfg": {"patch_dropout": 0.5}}, "dropping.json")
    learner = build_learner(make_tiny_config(tmp_path, model=model))
    pairs = make_pairs(learner)
    first, again, other = (encode_rows(learner, pairs, slice(0, 4), seed).frames for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_weights_of_one_are_plain_info_nce() -> None:
    logits = torch.randn(9, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(info_nce(logits, torch.full((9,), 0.3).double()), info_nce(logits))


def test_a_pair_of_weight_zero_pulls_nothing_together() -> None:
    logits = torch.randn(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    weights = torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    info_nce(logits, weights).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad[2, 2] == 0.0  # neither way: all that is left is to be a negative
    assert (logits.grad.diagonal()[weights > 0] < 0).all()
    assert logits.grad[0, 2] > 0


def test_captions_of_one_medium_are_no_negatives() -> None:
    logits = torch.randn(4, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    masked = mask_false_negatives(logits, torch.tensor([7, 8, 7, 9]))
    info_nce(masked).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad[0, 2] == logits.grad[2, 0] == 0.0
    assert (logits.grad[0, [1, 3]] > 0).all() and logits.grad[0, 0] < 0
    rows = torch.log_softmax(logits[0, [0, 1, 3]], 0)[0] + torch.log_softmax(logits[2, [1, 2, 3]], 0)[1]
    rows = rows + torch.log_softmax(logits[1], 0)[1] + torch.log_softmax(logits[3], 0)[3]
    columns = torch.log_softmax(logits[[0, 1, 3], 0], 0)[0] + torch.log_softmax(logits[[1, 2, 3], 2], 0)[1]
    columns = columns + torch.log_softmax(logits[:, 1], 0)[1] + torch.log_softmax(logits[:, 3], 0)[3]
    torch.testing.assert_close(info_nce(masked), -(rows + columns) / 8)


def test_the_paper_recipe_is_the_sum_of_its_parts(tmp_path: Path) -> None:
    learner = build_learner(make_tiny_config(tmp_path, target="paper", weight_uncertainty=3.0, weight_diversity=0.5))
    pairs = make_pairs(learner)
    with torch.no_grad():
        total, terms = compute_objective(learner, pairs, encode_rows(learner, pairs, slice(None), 0), ProcessGroup())
    assert total.item() == pytest.approx(terms.info_nce + 3.0 * terms.uncertainty + 0.5 * terms.diversity, rel=1e-5)


def test_the_corpus_target_is_a_standardised_h_that_ends_up_over_the_corpus() -> None:
    generator = torch.Generator().manual_seed(0)
    centre = torch.randn(2, 1, 12, generator=generator)
    visual, text = torch.nn.functional.normalize(torch.randn(2, 4096, 12, generator=generator) + centre, dim=-1)
    target = CorpusTarget(12, momentum=0.98)
    for start in range(0, 4096, 64):
        found = target(visual[start : start + 64], text[start : start + 64], torch.empty(0))
    h = visual @ text.mean(dim=0)
    expected = torch.sigmoid((h - h.mean()) / h.std())[-64:]
    assert torch.corrcoef(torch.stack([found[0], expected]))[0, 1] > 0.99
    assert (found[0] - expected).abs().max() < 0.1
    # no history: the statistics of the batch
    first = CorpusTarget(12, momentum=0.98)(visual[:64], text[:64], torch.empty(0))[1]
    h = text[:64] @ visual[:64].mean(dim=0)
    torch.testing.assert_close(first, torch.sigmoid((h - h.mean()) / h.std(correction=0)), atol=1e-4, rtol=0)


def test_the_retrieval_target_is_high_for_what_fits_much_of_the_batch() -> None:
    generator = torch.Generator().manual_seed(0)
    visual = torch.nn.functional.normalize(torch.randn(64, 12, generator=generator), dim=-1)
    text = visual.clone()
    text[:8] = visual.mean(dim=0) / visual.mean(dim=0).norm()  # captions that say what all have in common
    found = RetrievalTarget()(visual, text, 20 * visual @ text.T)
    assert found[1][:8].min() > found[1][8:].quantile(0.9)
    p = (20 * visual @ text.T).softmax(dim=0)
    perplexity = torch.exp(-(p * p.log()).sum(dim=0))
    assert torch.corrcoef(torch.stack([torch.logit(found[1]), perplexity.log()]))[0, 1] > 0.999
