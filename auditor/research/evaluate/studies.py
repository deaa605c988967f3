"""Runs the paper's analyses on one corpus: each function takes a `Study` and returns the rows and curves of a table.

A study holds the features of a training, a validation and a test part. Models are trained on the first
(projection_training.py), betas are fitted on the second, and figures are measured on the third, as means over seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from auditor.research.evaluate.benchmark_evaluation import compute_uncertainty
from auditor.research.evaluate.projection_training import (
    FeaturePairs,
    Projections,
    ProjectionTraining,
    train_projections,
)
from auditor.research.retrieval import analyses
from auditor.research.retrieval.analyses import (
    DIRECTIONS,
    Direction,
    ItemScores,
    average_runs,
    compute_deviation,
)
from auditor.research.retrieval.protocols import RerankWeights, average_results
from auditor.research.retrieval.recall import EmbeddingSet, RetrievalResult, compute_recall
from auditor.research.retrieval.rerank import RetrievalSplit, fit_beta
from model.fit_prototypes import fit_prototypes

BASELINE: dict[str, Any] = {"weight_uncertainty": 0.0, "weight_diversity": 0.0}
RETRIEVAL: dict[str, Any] = {"target": "retrieval"}
CUTS = ("R@1", "R@5", "R@10")
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

    def results(self, models: Sequence[Projections]) -> list[RetrievalResult]:
        return [compute_recall(model.embed(self.test)) for model in models]


def recall_reranked(study: Study, model: Projections, uncertainty_model: Projections) -> RetrievalResult:
    """Recall after equation 8 with the uncertainties of `uncertainty_model`; betas from the validation part."""
    validation, test = model.embed(study.validation), model.embed(study.test)
    u = compute_uncertainty(uncertainty_model.head, uncertainty_model.embed(study.validation))
    keys = [f"validation {i}" for i in range(len(validation.visual))]
    similarity = validation.scores(slice(None), slice(None))
    betas = fit_beta(RetrievalSplit(keys, similarity, u.visual, u.text, validation.text_groups), BETAS)
    u = compute_uncertainty(uncertainty_model.head, uncertainty_model.embed(study.test))
    factors = RerankWeights(np.exp(-betas.beta_visual * u.visual), np.exp(-betas.beta_text * u.text))
    return compute_recall(test, visual_weight=factors.visual, text_weight=factors.text)


BETAS = tuple(round(0.1 * step, 1) for step in range(16))


def average_recalls(results: Sequence[RetrievalResult]) -> dict[str, float]:
    """Mean recalls over seeds, and the standard deviation of RSum between seeds."""
    mean = average_results(results)
    row: dict[str, float] = {}
    for side, recalls in (("t2v", mean.text_to_visual), ("v2t", mean.visual_to_text)):
        row |= {f"{side} {cut}": getattr(recalls, cut.replace("@", "").lower()) for cut in CUTS}
    sums = [result.rsum for result in results]
    return row | {"RSum": float(np.mean(sums)), "sd": compute_deviation(sums)}


def score_test_part(study: Study, models: Sequence[Projections]) -> list[tuple[EmbeddingSet, ItemScores]]:
    return [(data := model.embed(study.test), compute_uncertainty(model.head, data)) for model in models]


def study_correlation(study: Study) -> StudyFindings:
    """Does u follow h? For heads trained with the projections, and for prototypes fitted on the frozen embeddings."""
    h = analyses.compute_mean_similarity(study.frozen)
    fitted = [
        analyses.correlate_scores(compute_uncertainty(fit_frozen_head(study, s), study.frozen), h)
        for s in range(study.seeds)
    ]
    correlations = {
        "trained with the projections": correlate_models(study, study.models()),
        "without L_uct (control)": correlate_models(study, study.models(**BASELINE)),
        "no head: h against the training part's mean": average_runs(
            [correlate_training_mean(study, m) for m in study.models()]
        ),
        "fitted on frozen embeddings": average_runs(fitted),
    }
    rows = [{"head": name, **row} for name, row in correlations.items()]
    return StudyFindings(
        rows, bars=make_bars(rows, "head", ("PCC_V", "PCC_T")), axes=("", "Pearson correlation of u and h")
    )


def correlate_models(study: Study, models: Sequence[Projections]) -> dict[str, float]:
    """The correlation of u and h, averaged over models."""
    correlation: dict[str, float] = average_runs(
        [
            analyses.correlate_scores(u, analyses.compute_mean_similarity(data))
            for data, u in score_test_part(study, models)
        ]
    )
    return correlation


def correlate_training_mean(study: Study, model: Projections) -> dict[str, float]:
    """How well h generalizes: the similarity to the mean of the training part, correlated with h of the test part."""
    training, data = model.embed(study.train), model.embed(study.test)
    similarity_to_mean = ItemScores(data.visual @ training.text.mean(axis=0), data.text @ training.visual.mean(axis=0))
    return analyses.correlate_scores(similarity_to_mean, analyses.compute_mean_similarity(data))


def fit_frozen_head(study: Study, seed: int) -> Any:
    import torch

    data = study.frozen_train
    return fit_prototypes(torch.from_numpy(data.visual), torch.from_numpy(data.text), seed=seed)


def make_bars(rows: Sequence[Mapping[str, Any]], name: str, columns: Sequence[str]) -> Bars:
    return {column: [(row[name], row[column]) for row in rows] for column in columns}


def abbreviate_direction(direction: Direction) -> str:
    return "v2t" if direction == "visual_to_text" else "t2v"


def study_removal(study: Study) -> StudyFindings:
    """Figure 3: R@1 of the baseline without the r items most uncertain to PAU; also removed at random and by h.

    u follows h, as in the paper, or the retrieval entropy in the batch ("retrieval").
    """
    runs, galleries = [], []
    for baseline_model, model, retrieval_model in zip(
        study.models(**BASELINE), study.models(), study.models(**RETRIEVAL), strict=True
    ):
        baseline = baseline_model.embed(study.test)
        orders = {
            "uncertainty": compute_uncertainty(model.head, model.embed(study.test)),
            "uncertainty (retrieval)": compute_uncertainty(retrieval_model.head, retrieval_model.embed(study.test)),
            "mean similarity": analyses.compute_mean_similarity(baseline),
        }
        runs.append({d: analyses.compute_removal_curve(baseline, orders, d) for d in DIRECTIONS})
        galleries.append({d: analyses.compute_gallery_removal_curve(baseline, orders, d) for d in DIRECTIONS})
    rows: list[dict[str, Any]] = []
    series: Series = {}
    for direction, curve in average_runs(runs).items():
        rows += [{"direction": abbreviate_direction(direction), **row} for row in curve]
        for name in (*orders, "random"):
            series[f"{abbreviate_direction(direction)} {name}"] = [(row["share"], row[name]) for row in curve]
    return StudyFindings(rows, series, axes=("share removed", "R@1"), details={"gallery_only": average_runs(galleries)})


def study_trust(study: Study) -> StudyFindings:
    """Figure 4: PAU and the baseline on only the r most uncertain samples, for each target of u."""
    size = len(study.test.visual)
    sizes = [round(size * share) for share in (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)]
    rows: list[dict[str, Any]] = []
    series: Series = {}
    for target, changes in (("h", {}), ("retrieval", RETRIEVAL)):
        runs = []
        for baseline, model in zip(study.models(**BASELINE), study.models(**changes), strict=True):
            models = {"PAU": model.embed(study.test), "baseline": baseline.embed(study.test)}
            u = compute_uncertainty(model.head, models["PAU"])
            runs.append({d: analyses.compare_uncertain_subsets(models, u, d, sizes) for d in DIRECTIONS})
        for direction, curve in average_runs(runs).items():
            side = {"direction": abbreviate_direction(direction), "target": target}
            rows += [{**side, **row, "gain": row["PAU"] - row["baseline"]} for row in curve]
            for name in ("PAU", "baseline"):
                series[f"{abbreviate_direction(direction)} {name}, u by {target}"] = [
                    (row["samples"], row[name]) for row in curve
                ]
    return StudyFindings(rows, series, axes=("most uncertain samples", "R@1"))


def study_deciles(study: Study) -> StudyFindings:
    """Recall by tenths of uncertainty and of h, and how well each predicts failure."""
    measures = average_runs([measure_failure_prediction(data, u) for data, u in score_test_part(study, study.models())])
    rows = [
        {
            "direction": name.partition(" ")[0],
            "score": name.partition(" ")[2],
            "lowest tenth": tenths[0]["recall"],
            "highest tenth": tenths[-1]["recall"],
            "AUROC of failing": measures["calibration"][name]["auroc"],
            "Brier": measures["calibration"][name]["brier"],
            "Brier of the mean": measures["calibration"][name]["brier_constant"],
            "calibration error": measures["calibration"][name]["expected_error"],
        }
        for name, tenths in measures["tenths"].items()
    ]
    series = {name: [(b["bin"], b["recall"]) for b in tenths] for name, tenths in measures["tenths"].items()}
    return StudyFindings(
        rows, series, axes=("tenth of the score", "R@1"), details={"calibration": measures["calibration"]}
    )


def measure_failure_prediction(data: EmbeddingSet, u: ItemScores) -> dict[str, dict[str, Any]]:
    """Recall by tenths and calibration of one model, under names such as "v2t uncertainty"."""
    measures: dict[str, dict[str, Any]] = {"tenths": {}, "calibration": {}}
    for direction in DIRECTIONS:
        hit = analyses.rank_queries(data, direction).hit(1)
        for name, scores in {"uncertainty": u, "mean similarity": analyses.compute_mean_similarity(data)}.items():
            side = scores.visual if direction == "visual_to_text" else scores.text
            measures["tenths"][f"{abbreviate_direction(direction)} {name}"] = analyses.compute_recall_by_bin(side, hit)
            measures["calibration"][f"{abbreviate_direction(direction)} {name}"] = analyses.calibrate_recall(
                side, hit
            ).to_dict()
    return measures


def study_ablation(study: Study) -> StudyFindings:
    """Table 5: the effects of L_uct, L_div and re-ranking, added one by one."""
    pau = study.models()
    rows = []
    bars: Bars = {"plain": [], "re-ranked": []}
    for changes, uct, div in ((BASELINE, False, False), ({"weight_diversity": 0.0}, True, False), ({}, True, True)):
        models = study.models(**changes)
        uncertainty_models = models if uct else pau  # the paper re-ranks its baseline with the uncertainties of PAU
        reranked = [
            recall_reranked(study, model, uncertainty_model)
            for model, uncertainty_model in zip(models, uncertainty_models, strict=True)
        ]
        for name, results in ((False, study.results(models)), (True, reranked)):
            rows.append({"L_uct": uct, "L_div": div, "re-rank": name, **average_recalls(results)})
            setting = "L_uct, L_div" if div else "L_uct" if uct else "neither L_uct nor L_div"
            bars["re-ranked" if name else "plain"].append((setting, rows[-1]["RSum"]))
    return StudyFindings(rows, bars=bars, axes=("", "RSum"))


def compare_variants(study: Study, variants: Mapping[str, dict[str, Any]]) -> StudyFindings:
    """Recall of variants of PAU without re-ranking, and their correlation of u and h, which shows what they learned."""
    rows = []
    for name, changes in {"without PAU": BASELINE, **variants}.items():
        models = study.models(**changes)
        rows.append({"setting": name, **average_recalls(study.results(models)), **correlate_models(study, models)})
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
