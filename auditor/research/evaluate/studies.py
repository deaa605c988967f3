"""Runs the paper's analyses on one corpus: each function takes a `Study` and returns the rows and curves of a table.

A study holds the features of a training, a validation and a test part. Models are trained on the first
(projection_training.py), betas are fitted on the second, and figures are measured on the third, as means over seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from auditor.research.evaluate.benchmark_evaluation import compute_item_uncertainty, fit_audit_head, fit_head
from auditor.research.evaluate.benchmark_splits import EvaluationError
from auditor.research.evaluate.projection_training import (
    FeaturePairs,
    Projections,
    ProjectionTraining,
    train_projections,
)
from auditor.research.retrieval import analyses
from auditor.research.retrieval.analyses import ItemScores, average_runs, compute_deviation, compute_mean_similarity
from auditor.research.retrieval.protocols import average_results
from auditor.research.retrieval.recall import (
    DIRECTIONS,
    Array,
    EmbeddingSet,
    RetrievalResult,
    compute_recall,
)
from auditor.research.retrieval.rerank import fit_beta
from auditor.score.score_config import HeadFitConfig
from auditor.score.statistics.mismatch import fit_mismatch
from auditor.score.statistics.mismatch_statistic import compute_statistic
from auditor.score.statistics.rivals import ReferenceSample, measure_pairs
from auditor.score.statistics.siblings import collect_siblings

BASELINE: dict[str, Any] = {"weight_uncertainty": 0.0, "weight_diversity": 0.0}
RETRIEVAL: dict[str, Any] = {"target": "retrieval", "prototypes": HeadFitConfig().prototypes}  # u as in an audit
TARGETS: dict[str, dict[str, Any]] = {"h": {}, "retrieval": RETRIEVAL}
REFERENCE_PAIRS = 20_000  # most pairs of the reference sample of p_mismatch
NO_ESTIMATES = {"pi0": None, "AUROC of p": None}
SIDES = {"visual_to_text": "v2t", "text_to_visual": "t2v"}
Series = dict[str, list[tuple[float, float]]]
Bars = dict[str, list[tuple[str, float]]]  # for each color: the label and the length of each bar


@dataclass(frozen=True)
class StudyFindings:
    """Rows of a table, lines or bars of a plot with the names of its axes, and further details for the JSON."""

    rows: list[dict[str, Any]]
    series: Series = field(default_factory=dict)
    bars: Bars = field(default_factory=dict)
    axes: tuple[str, str] = ("", "")
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    train: FeaturePairs
    validation: FeaturePairs
    test: FeaturePairs
    frozen: EmbeddingSet  # the test part, embedded by the backbone itself
    frozen_train: EmbeddingSet  # the training part, embedded by the backbone itself
    captions: Sequence[str]  # of the test part
    logit_scale: float = 100.0  # of the backbone
    similarity: str = "cosine"
    failed: dict[str, list[str]] = field(default_factory=dict)  # split -> key and reason for each excluded medium
    seeds: int = 3
    settings: ProjectionTraining = field(default_factory=ProjectionTraining)
    trained: dict[ProjectionTraining, Projections] = field(default_factory=dict, repr=False)

    def models(self, **changes: Any) -> list[Projections]:
        """One model per seed; each model is trained only once."""
        models = []
        for seed in range(self.seeds):
            config = replace(self.settings, seed=seed, **changes)
            if config not in self.trained:
                self.trained[config] = train_projections(self.train, config)
            models.append(self.trained[config])
        return models

    def score_test(self, model: Projections) -> tuple[EmbeddingSet, ItemScores]:
        """The test part, embedded by a model, and the uncertainties of its head."""
        data = model.embed(self.test)
        return data, compute_item_uncertainty(model.head, data)

    def audit_test(self) -> ItemScores:
        """u from an audit of the test part: prototypes fitted on its own pairs, as embedded by the backbone."""
        return compute_item_uncertainty(fit_audit_head(self.frozen, self.captions, self.logit_scale), self.frozen)


def recall_reranked(
    study: Study, model: Projections, uncertainty_model: Projections
) -> tuple[RetrievalResult, dict[str, float]]:
    """Recall after equation 8 with the uncertainties of `uncertainty_model`, and the betas from the validation part."""
    validation, test = model.embed(study.validation), model.embed(study.test)
    u = compute_item_uncertainty(uncertainty_model.head, uncertainty_model.embed(study.validation))
    keys = [f"validation {i}" for i in range(len(validation.visual))]
    rerank = fit_beta(keys, validation, u)
    result = compute_recall(rerank.apply((), test, study.score_test(uncertainty_model)[1]))
    return result, {"beta_visual": rerank.beta_visual, "beta_text": rerank.beta_text}


def average_recalls(results: Sequence[RetrievalResult]) -> dict[str, float]:
    mean = average_results(results).to_dict()
    row = {f"{SIDES[way]} {cut}": mean[way][cut] for way in DIRECTIONS[::-1] for cut in ("R@1", "R@5", "R@10")}
    return row | {"RSum": mean["RSum"], "sd": compute_deviation([result.rsum for result in results])}


def study_correlation(study: Study) -> StudyFindings:
    """Does u follow h? For heads trained with the projections, and for prototypes fitted on the frozen embeddings."""
    h, models = compute_mean_similarity(study.frozen), study.models()
    heads = [fit_head(study.frozen_train, seed) for seed in range(study.seeds)]
    correlations = {
        "trained with the projections": correlate_models(study, models),
        "without L_uct (control)": correlate_models(study, study.models(**BASELINE)),
        "no head: h against the training part's mean": average_runs(
            [correlate_training_mean(study, model) for model in models]
        ),
        "fitted on frozen embeddings": average_runs(
            [analyses.correlate_scores(compute_item_uncertainty(head, study.frozen), h) for head in heads]
        ),
    }
    rows = [{"head": name, **row} for name, row in correlations.items()]
    bars = make_bars(rows, "head", ("PCC_V", "PCC_T"))
    return StudyFindings(rows, bars=bars, axes=("", "Pearson correlation of u and h"))


def correlate_models(study: Study, models: Sequence[Projections]) -> Any:
    scored = map(study.score_test, models)
    return average_runs([analyses.correlate_scores(u, compute_mean_similarity(data)) for data, u in scored])


def correlate_training_mean(study: Study, model: Projections) -> dict[str, float]:
    """How well h generalizes: the similarity to the mean of the training part, correlated with h of the test part."""
    training, data = model.embed(study.train), model.embed(study.test)
    similarity_to_mean = ItemScores(data.visual @ training.text.mean(axis=0), data.text @ training.visual.mean(axis=0))
    return analyses.correlate_scores(similarity_to_mean, compute_mean_similarity(data))


def make_bars(rows: Sequence[Mapping[str, Any]], name: str, columns: Sequence[str]) -> Bars:
    return {column: [(row[name], row[column]) for row in rows] for column in columns}


def study_removal(study: Study) -> StudyFindings:
    """Figure 3: R@1 of the baseline without the r items most uncertain to PAU; also removed at random and by h.

    u follows h, as in the paper, or the retrieval entropy in the batch ("retrieval"), or it is that of an audit.
    """
    runs, audit_u = [], study.audit_test()
    for plain, *models in zip(study.models(**BASELINE), study.models(), study.models(**RETRIEVAL), strict=True):
        baseline = plain.embed(study.test)
        u, u_retrieval = (study.score_test(model)[1] for model in models)
        orders = {"uncertainty": u, "uncertainty (retrieval)": u_retrieval, "uncertainty (audit)": audit_u}
        orders["mean similarity"] = compute_mean_similarity(baseline)
        runs.append({d: analyses.compute_removal_curve(baseline, orders, d) for d in DIRECTIONS})
    rows: list[dict[str, Any]] = []
    series: Series = {}
    for direction, curve in average_runs(runs).items():
        side = SIDES[direction]
        rows += [{"direction": side, **row} for row in curve]
        series |= {f"{side} {name}": [(row["share"], row[name]) for row in curve] for name in (*orders, "random")}
    return StudyFindings(rows, series, axes=("share removed", "R@1"))


def study_trust(study: Study) -> StudyFindings:
    """Figure 4: PAU and the baseline on only the r most uncertain samples, by u of PAU for each target and of an audit.

    The audit's u is that of the backbone, so it prefers neither model.
    """
    size = len(study.test.visual)
    sizes = [round(size * share) for share in (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)]
    rows: list[dict[str, Any]] = []
    series: Series = {}
    for name, audit_u in (("h", None), ("retrieval", None), ("audit", study.audit_test())):
        runs = []
        models = study.models(**TARGETS.get(name, RETRIEVAL))
        for baseline, model in zip(study.models(**BASELINE), models, strict=True):
            data, u = study.score_test(model)
            pair = {"PAU": data, "baseline": baseline.embed(study.test)}
            runs.append({d: analyses.compare_uncertain_subsets(pair, audit_u or u, d, sizes) for d in DIRECTIONS})
        for direction, curve in average_runs(runs).items():
            side = SIDES[direction]
            rows += [{"direction": side, "u": name, **r, "gain": r["PAU"] - r["baseline"]} for r in curve]
            for model_name in pair:
                series[f"{side} {model_name}, u by {name}"] = [(row["samples"], row[model_name]) for row in curve]
    return StudyFindings(rows, series, axes=("most uncertain samples", "R@1"))


def study_deciles(study: Study) -> StudyFindings:
    """Recall by tenths of uncertainty and of h, and how well each predicts failure."""
    runs = []
    for data, u in map(study.score_test, study.models()):
        orders = {"uncertainty": u, "mean similarity": compute_mean_similarity(data)}
        runs.append(analyses.measure_failure_prediction(data, orders))
    rows, series, calibrations = [], {}, {}
    measures = average_runs(runs)
    for direction, side in SIDES.items():
        for name, tenths in measures["deciles"][direction].items():
            calibration = measures["calibration"][direction][name]
            calibrations[f"{side} {name}"] = calibration
            series[f"{side} {name}"] = [(b["bin"], b["recall"]) for b in tenths]
            rows.append(
                {
                    "direction": side,
                    "score": name,
                    "lowest tenth": tenths[0]["recall"],
                    "highest tenth": tenths[-1]["recall"],
                    "AUROC of failing": calibration["auroc"],
                    "Brier": calibration["brier"],
                    "Brier of the mean": calibration["brier_constant"],
                    "calibration error": calibration["expected_error"],
                }
            )
    return StudyFindings(rows, series, axes=("tenth of the score", "R@1"), details={"calibration": calibrations})


def study_ablation(study: Study) -> StudyFindings:
    """Table 5: the effects of L_uct, L_div and re-ranking, added one by one, for each target of u."""
    rows: list[dict[str, Any]] = []
    bars: Bars = {"plain": [], "re-ranked": []}
    for target, changes in TARGETS.items():
        variants = {"neither L_uct nor L_div": BASELINE, "L_uct": changes | {"weight_diversity": 0.0}}
        for setting, variant in (variants | {"L_uct, L_div": changes}).items():
            models = study.models(**variant)
            # The paper re-ranks its baseline with the uncertainties of PAU.
            uncertainty_models = study.models(**changes) if variant is BASELINE else models
            plain = [compute_recall(model.embed(study.test)) for model in models]
            pairs = zip(models, uncertainty_models, strict=True)
            reranked, betas = zip(*(recall_reranked(study, *pair) for pair in pairs), strict=True)
            terms = {"target": target, "L_uct": variant is not BASELINE, "L_div": variant is changes}
            rows.append({**terms, "re-rank": False, **average_recalls(plain), **dict.fromkeys(betas[0], 0.0)})
            rows.append({**terms, "re-rank": True, **average_recalls(reranked), **average_runs(betas)})
            for bar, row in zip(bars.values(), rows[-2:], strict=True):
                bar.append((f"{setting} ({target})", row["RSum"]))
    return StudyFindings(rows, bars=bars, axes=("", "RSum"))


def compare_variants(study: Study, variants: Mapping[str, dict[str, Any]]) -> StudyFindings:
    """Recall of variants of PAU without re-ranking, and their correlation of u and h, which shows what they learned."""
    rows = []
    for name, changes in {"without PAU": BASELINE, **variants}.items():
        models = study.models(**changes)
        results = [compute_recall(model.embed(study.test)) for model in models]
        rows.append({"setting": name, **average_recalls(results), **correlate_models(study, models)})
    return StudyFindings(rows, bars=make_bars(rows, "setting", ("RSum",)), axes=("", "RSum"))


def study_prototypes(study: Study) -> StudyFindings:
    counts = (1, 4, 8, 12, 16)
    rows = compare_variants(study, {f"K = {k}": {"prototypes": k} for k in counts}).rows
    series: Series = {
        "PAU": [(k, row["RSum"]) for k, row in zip(counts, rows[1:], strict=True)],
        "without PAU": [(k, rows[0]["RSum"]) for k in counts],
    }
    return StudyFindings(rows, series, axes=("prototypes K", "RSum"))


def study_evidence(study: Study) -> StudyFindings:
    return compare_variants(study, {name: {"evidence": name} for name in ("relu", "softplus", "exp")})


def study_init(study: Study) -> StudyFindings:
    names = ("kaiming_uniform", "kaiming_normal", "orthogonal", "xavier")
    return compare_variants(study, {name: {"init": name} for name in names})


def study_noise(study: Study) -> StudyFindings:
    """Recall after training on noisy pairs: baseline, PAU, and pairs weighted by 1 - p_mismatch, alone and with PAU."""
    rows: list[dict[str, Any]] = []
    for share in (0.0, 0.2, 0.5):
        results_by_method: dict[str, list[RetrievalResult]] = {}
        quality = []
        for seed in range(study.seeds):
            pairs, wrong = shuffle_captions(study.train, share, seed)
            p, pi0 = cross_fit_mismatch(pairs, replace(study.settings, seed=seed, **BASELINE))
            quality.append((pi0, analyses.compute_auroc(p, wrong.astype(float)) if share else float("nan")))
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
        siblings = collect_siblings(owners, media, text)
        scale = float(model.log_scale.detach().exp())
        sample = ReferenceSample(media, text, owners, scale=scale, siblings=siblings)
        reference = sample.take(sample_media_pairs(owners, REFERENCE_PAIRS, config.seed))
        fit = fit_mismatch(reference, seed=config.seed, captions=len(pairs.owners), draws=20_000, bootstraps=0)
        if fit is None or fit.statistic is None:
            raise EvaluationError(f"{len(owners)} pairs are too few to separate mismatched pairs from matching ones")
        measured = measure_pairs(sample, reference)
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
