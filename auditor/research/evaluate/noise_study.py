"""Trains on shuffled captions: does PAU help, and does weighting pairs by 1 - p_mismatch help?"""

from dataclasses import replace
from typing import Any

import numpy as np

from auditor.research.evaluate.benchmark_splits import EvaluationError
from auditor.research.evaluate.projection_training import FeaturePairs, ProjectionTraining, train_projections
from auditor.research.evaluate.studies import BASELINE, Study, StudyFindings, average_recalls
from auditor.research.retrieval.analyses import compute_auroc
from auditor.research.retrieval.recall import Array, RetrievalResult, compute_recall
from auditor.score.statistics.mismatch import fit_mismatch
from auditor.score.statistics.mismatch_statistic import compute_statistic
from auditor.score.statistics.rivals import ReferenceSample, measure_pairs
from auditor.score.statistics.siblings import collect_siblings

REFERENCE_PAIRS = 20_000  # most pairs of the reference sample of p_mismatch
NO_ESTIMATES = {"pi0": None, "AUROC of p": None}


def study_noise(study: Study) -> StudyFindings:
    """Recall after training on noisy pairs: baseline, PAU, and pairs weighted by 1 - p_mismatch, alone and with PAU."""
    rows: list[dict[str, Any]] = []
    for share in (0.0, 0.2, 0.5):
        results_by_method: dict[str, list[RetrievalResult]] = {}
        quality = []
        for seed in range(study.seeds):
            pairs, wrong = shuffle_captions(study.train, share, seed)
            p, pi0 = cross_fit_mismatch(pairs, replace(study.settings, seed=seed, **BASELINE))
            quality.append((pi0, compute_auroc(p, wrong.astype(float)) if share else float("nan")))
            for name, changes, weights in (
                ("baseline", BASELINE, None),
                ("PAU", {}, None),
                ("1 - p_mismatch", BASELINE, 1 - p),
                ("PAU, 1 - p_mismatch", {}, 1 - p),
            ):
                model = train_projections(pairs, replace(study.settings, seed=seed, **changes), weights)
                results_by_method.setdefault(name, []).append(compute_recall(model.embed(study.test)))
        estimated, separation = np.mean(quality, axis=0)
        for name, results in results_by_method.items():
            weighted = "p_mismatch" in name
            figures = {"pi0": float(estimated), "AUROC of p": float(separation)} if weighted else NO_ESTIMATES
            rows.append({"shuffled": share, "method": name, **average_recalls(results), **figures})
    series = {
        name: [(row["shuffled"], row["RSum"]) for row in rows if row["method"] == name]
        for name in dict.fromkeys(row["method"] for row in rows)
    }
    return StudyFindings(rows, series, axes=("share of shuffled captions", "RSum"))


def cross_fit_mismatch(pairs: FeaturePairs, config: ProjectionTraining) -> tuple[Array, float]:
    """p_mismatch of every pair from a model trained on the other half of the media, and the estimated share pi0.

    No clean pair is needed, and no model can have memorized a wrong pair that it scores.
    """
    half = pairs.owners % 2 == 0
    p = np.zeros(len(pairs.owners))
    shares = []
    for held_out in (half, ~half):
        training = replace(pairs, text=pairs.text[~held_out], owners=pairs.owners[~held_out])
        model = train_projections(training, config)
        data, owners = model.embed(pairs), pairs.owners[held_out]
        media, text = data.media.take(owners), data.text[held_out]
        siblings = collect_siblings(owners, text, media.own_similarity(text))
        scale = float(model.log_scale.detach().exp())
        sample = ReferenceSample(media, text, owners, scale, siblings=siblings)
        reference = sample.take(sample_media_pairs(owners, REFERENCE_PAIRS, config.seed))
        fit = fit_mismatch(reference, seed=config.seed, captions=len(pairs.owners), draws=20_000)
        if fit is None or fit.statistic is None:
            raise EvaluationError(f"{len(owners)} pairs are too few to separate mismatched pairs from matching ones")
        measured = measure_pairs(sample.media, text, owners, reference, hubs=fit.statistic.hubs)
        p[held_out] = fit.p(compute_statistic(fit.statistic, sample, measured))
        shares.append(fit.pi0)
    return p, float(np.mean(shares))


def sample_media_pairs(owners: Array, pairs: int, seed: int) -> Array:
    """Rows of random media with all their captions, at most `pairs` rows; all rows if there are no more.

    With whole media, a swapped caption meets its true medium as often as the sample covers the corpus (`fit_mismatch`).
    """
    if len(owners) <= pairs:
        return np.arange(len(owners))
    media, captions = np.unique(owners, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(media))
    return np.flatnonzero(np.isin(owners, media[order[np.cumsum(captions[order]) <= pairs]]))


def shuffle_captions(pairs: FeaturePairs, share: float, seed: int) -> tuple[FeaturePairs, Array]:
    """Give a share of the captions to other media; returns the noisy pairs and the mask of wrong pairs."""
    generator = np.random.default_rng(seed)
    count = round(share * len(pairs.owners))
    chosen = generator.permutation(len(pairs.owners))[:count]
    owners = pairs.owners.copy()
    owners[chosen] = owners[np.roll(chosen, 1)]
    return replace(pairs, owners=owners), np.asarray(owners != pairs.owners)
