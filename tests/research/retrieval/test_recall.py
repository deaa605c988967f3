"""Retrieval metrics against naive counting, against random tie-breaking, and against the authors' program."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditor.research.retrieval import recall
from auditor.research.retrieval.recall import (
    EmbeddingSet,
    Ranks,
    Recalls,
    RetrievalError,
    compute_recall,
    rank_block,
    rank_queries,
)
from auditor.vectors import MediaVectors
from tests.support.similarity_recall import recall_from_similarity


def unit(rng: np.random.Generator, *shape: int) -> np.ndarray:
    x = rng.normal(size=shape).astype(np.float32)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def naive_rank(scores: np.ndarray, positive: np.ndarray, rng: np.random.Generator) -> int:
    """The rank of the first positive, from 1, after sorting with equal scores in random order."""
    order = np.lexsort((rng.random(len(scores)), -scores))
    return int(np.flatnonzero(positive[order])[0]) + 1


def image_set(seed: int, media: int = 40, captions: int = 5, dim: int = 16) -> EmbeddingSet:
    rng = np.random.default_rng(seed)
    visual = unit(rng, media, dim)
    owners = np.repeat(np.arange(media), captions)
    text = visual[owners] + 0.9 * unit(rng, media * captions, dim)
    return EmbeddingSet(
        MediaVectors(visual), text / np.linalg.norm(text, axis=1, keepdims=True), np.arange(media), owners
    )


def video_set(seed: int) -> EmbeddingSet:
    data = image_set(seed, media=12, captions=3)
    rng = np.random.default_rng(seed + 1)
    mask = rng.random((12, 4)) < 0.6
    mask[0] = True
    return replace(data, media=MediaVectors(data.visual, unit(rng, 12, 4, 16), mask))


def test_without_ties_ranks_are_those_of_sorting() -> None:
    data = image_set(0)
    rng = np.random.default_rng(0)
    scores = data.visual @ data.text.T
    positive = data.visual_groups[:, None] == data.text_groups[None, :]
    expected = [naive_rank(scores[i], positive[i], rng) for i in range(40)]
    assert rank_queries(data, "visual_to_text").expected().tolist() == expected
    expected = [naive_rank(scores[:, j], positive[:, j], rng) for j in range(200)]
    assert rank_queries(data, "text_to_visual").expected().tolist() == expected


@pytest.mark.parametrize("block_scores", [1, 37, 1000, 10**9])
@pytest.mark.parametrize("make", [image_set, video_set])
@pytest.mark.parametrize("collapse", [False, True])
def test_blocks_give_what_the_full_matrix_gives(  # type: ignore[no-untyped-def]
    make, block_scores: int, collapse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recall, "BLOCK_SCORES", block_scores)
    data = make(3)
    full = np.empty((len(data.visual), len(data.text)))
    for i in range(len(data.visual)):
        for j, t in enumerate(data.text):
            full[i, j] = data.visual[i] @ t
            if data.media.frames is not None and data.media.mask[i].any():
                full[i, j] = (full[i, j] + max(f @ t for f in data.media.frames[i][data.media.mask[i]])) / 2
    weights = np.linspace(0.5, 1, len(data.visual)), np.linspace(1, 0.6, len(data.text))
    naive = recall_from_similarity(full * np.outer(*weights), data.text_groups, collapse_texts=collapse)
    assert compute_recall(data.reweight(*weights), collapse_texts=collapse) == naive


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(1, 4))
def test_ties_are_the_mean_over_random_orders(seed: int, gallery: int, positives: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 3, size=(1, gallery)).astype(float)  # three values: ties everywhere
    groups = np.zeros(gallery, dtype=int)
    groups[rng.permutation(gallery)[: min(positives, gallery - 1)]] = 1
    ranks = rank_block(scores, np.array([1]), groups, 0.0)
    drawn = np.array([naive_rank(scores[0], groups == 1, rng) for _ in range(1500)])
    assert ranks.expected()[0] == pytest.approx(drawn.mean(), abs=5 * drawn.std() / np.sqrt(1500) + 1e-9)
    for k in (1, 5, 10):
        assert ranks.hit(k)[0] == pytest.approx((drawn <= k).mean(), abs=0.07)


def test_a_constant_score_has_the_recall_of_chance() -> None:
    result = recall_from_similarity(np.zeros((100, 100)))
    assert result.text_to_visual.r1 == pytest.approx(1.0)
    assert result.text_to_visual.r10 == pytest.approx(10.0)
    assert result.text_to_visual.mean_rank == pytest.approx(50.5)
    several = recall_from_similarity(np.zeros((20, 100)), np.repeat(np.arange(20), 5))
    assert several.visual_to_text.r1 == pytest.approx(5.0)
    assert several.visual_to_text.mean_rank == pytest.approx(101 / 6)


def test_equal_embeddings_are_ties_whatever_the_order_of_summation() -> None:
    data = image_set(5, media=30, captions=1, dim=384)
    same = replace(data, media=MediaVectors(np.repeat(data.visual[:1], 30, axis=0)))
    assert compute_recall(same).text_to_visual.r1 == pytest.approx(100 / 30)


def test_collapsed_captions_count_other_media_not_their_sentences() -> None:
    # medium 0 has one caption below both captions of medium 1
    scores = np.array([[0.5, 0.9, 0.8], [0.1, 0.7, 0.2]])
    owners = np.array([0, 1, 1])
    assert recall_from_similarity(scores, owners).visual_to_text.mean_rank == pytest.approx((3 + 1) / 2)
    assert recall_from_similarity(scores, owners, collapse_texts=True).visual_to_text.mean_rank == pytest.approx(1.5)


def test_queries_without_positive_are_counted_not_scored() -> None:
    data = image_set(1).take_text(np.arange(5, 200))  # all captions of medium 0 removed
    result = compute_recall(data)
    assert (result.visual_to_text.queries, result.visual_to_text.without_positive) == (39, 1)
    assert result.text_to_visual.without_positive == 0
    with pytest.raises(RetrievalError, match="no query has a positive"):
        Recalls.of(Ranks(np.zeros(1), np.zeros(1), np.zeros(1)))


def test_mismatched_shapes_are_refused() -> None:
    data = image_set(1)
    with pytest.raises(RetrievalError, match="cannot be compared"):
        EmbeddingSet(MediaVectors(data.visual), data.text[:, :4], data.visual_groups, data.text_groups)
    with pytest.raises(RetrievalError, match="one group"):
        EmbeddingSet(MediaVectors(data.visual), data.text, data.visual_groups[:3], data.text_groups)
    with pytest.raises(RetrievalError, match="which caption belongs"):
        recall_from_similarity(np.zeros((2, 4)))


def test_images_agree_with_the_released_program(shared: Path) -> None:
    known = np.load(shared / "oracle" / "itm_eval_f30kstyle_60img.npz")
    owners = np.arange(300) // 5
    for prefix, scores in (("plain", known["sim_plain"]), ("rerank", known["sim_rerank"])):
        result = recall_from_similarity(scores, owners)
        for ours, theirs in ((result.visual_to_text, "i2t"), (result.text_to_visual, "t2i")):
            assert ours.r1 == pytest.approx(float(known[f"{prefix}__{theirs}_R1"]), abs=1e-4)
            assert ours.r5 == pytest.approx(float(known[f"{prefix}__{theirs}_R5"]), abs=1e-4)
            assert ours.r10 == pytest.approx(float(known[f"{prefix}__{theirs}_R10"]), abs=1e-4)


def assert_direction(ours: Recalls, known: np.lib.npyio.NpzFile, theirs: str) -> None:
    assert ours.r1 == pytest.approx(float(known[f"{theirs}__R1"]), abs=1e-4)
    assert ours.r5 == pytest.approx(float(known[f"{theirs}__R5"]), abs=1e-4)
    assert ours.r10 == pytest.approx(float(known[f"{theirs}__R10"]), abs=1e-4)
    assert ours.median_rank == pytest.approx(float(known[f"{theirs}__MedianR"]))
    assert ours.mean_rank == pytest.approx(float(known[f"{theirs}__MeanR"]))


def test_videos_agree_with_the_released_program(shared: Path) -> None:
    known = np.load(shared / "oracle" / "video_eval_single_n50.npz")
    result = recall_from_similarity(known["sim_final_TxV"].T)
    assert_direction(result.text_to_visual, known, "t2v")
    assert_direction(result.visual_to_text, known, "v2t")


def test_several_sentences_agree_with_the_released_program(shared: Path) -> None:
    known = np.load(shared / "oracle" / "video_eval_multi_n30.npz")
    padded = known["sim_final_VxCxV"]  # rows of -inf where a video has fewer than five sentences
    scores = np.concatenate([rows[np.isfinite(rows).all(axis=1)] for rows in padded]).T
    result = recall_from_similarity(scores, known["text_to_video"], collapse_texts=True)
    assert_direction(result.text_to_visual, known, "t2v")
    assert_direction(result.visual_to_text, known, "v2t")


def test_video_scores_agree_with_the_released_program(shared: Path) -> None:
    known = np.load(shared / "oracle" / "video_eval_multi_n30.npz")  # no padded frames: there definitions coincide
    frames, text = known["frame_feats"], known["txt_feats"]
    frames = frames / np.linalg.norm(frames, axis=2, keepdims=True)
    pooled = frames.mean(axis=1)
    data = EmbeddingSet(
        MediaVectors(pooled / np.linalg.norm(pooled, axis=1, keepdims=True), frames, known["frame_mask"].astype(bool)),
        text / np.linalg.norm(text, axis=1, keepdims=True),
        np.arange(30),
        known["text_to_video"],
    )
    ours = data.scores() * float(known["logit_scale"])
    np.testing.assert_allclose(ours, known["sim_plain_TxV"].T, rtol=0, atol=1e-9)
