"""The paper's analyses run on one corpus: each function takes a `Study` and returns rows, curves and what they show.

A study holds the features of a training, a validation and a test part; models are trained on the first
(projection_training.py), betas fitted on the second, everything reported on the third, as mean over
seeds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from auditor.research.evaluate.benchmark_encoding import EvaluationError
from auditor.research.evaluate.complexity import count
from auditor.research.evaluate.evaluate import uncertainty
from auditor.research.evaluate.projection_training import (
    FeaturePairs,
    Projections,
    ProjectionTraining,
    shuffle_captions,
    train,
)
from auditor.research.retrieval import analyses
from auditor.research.retrieval.analyses import DIRECTIONS, Direction, ItemScores, auroc, averaged, deviation
from auditor.research.retrieval.protocols import Weights, mean_result
from auditor.research.retrieval.recall import Array, EmbeddingSet, RetrievalResult, recall_from_embeddings
from auditor.research.retrieval.rerank import RetrievalSplit, fit_beta
from auditor.score.statistics.mismatch import fit_mismatch
from auditor.score.statistics.mismatch_statistic import judged
from auditor.score.statistics.rivals import Reference, measure
from auditor.score.statistics.siblings import siblings_of
from auditor.vectors import MediaVectors
from model.fit_prototypes import fit_prototypes

BASELINE: dict[str, Any] = {"weight_uncertainty": 0.0, "weight_diversity": 0.0}
RETRIEVAL: dict[str, Any] = {"target": "retrieval"}
CUTS = ("R@1", "R@5", "R@10")
REFERENCE_PAIRS = 20_000  # that p_mismatch is measured against at most
Series = dict[str, list[tuple[float, float]]]
Bars = dict[str, list[tuple[str, float]]]  # of each colour: what they stand for and how long they are


@dataclass(frozen=True)
class Findings:
    """Rows of a table, lines or bars of a plot with the names of its axes, and what else belongs into the JSON."""

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
    frozen: EmbeddingSet  # the test part as the backbone itself embeds it
    frozen_train: EmbeddingSet
    similarity: str = "cosine"
    failed: dict[str, list[str]] = field(default_factory=dict)  # split -> key and reason of media left out
    seeds: int = 3
    settings: ProjectionTraining = field(default_factory=ProjectionTraining)
    trained: dict[ProjectionTraining, Projections] = field(default_factory=dict, repr=False)

    def models(self, **changes: Any) -> list[Projections]:
        """One model per seed, trained once however often it is asked for."""
        found = []
        for seed in range(self.seeds):
            config = replace(self.settings, seed=seed, **changes)
            if config not in self.trained:
                self.trained[config] = train(self.train, config)
            found.append(self.trained[config])
        return found

    def results(self, models: Sequence[Projections]) -> list[RetrievalResult]:
        return [recall_from_embeddings(model.embed(self.test)) for model in models]


def reranked(study: Study, model: Projections, judge: Projections) -> RetrievalResult:
    """Equation 8 with the uncertainties of `judge`; betas from the validation part."""
    validation, test = model.embed(study.validation), model.embed(study.test)
    u = uncertainty(judge.head, judge.embed(study.validation))
    keys = [f"validation {i}" for i in range(len(validation.visual))]
    similarity = validation.scores(slice(None), slice(None))
    betas = fit_beta(RetrievalSplit(keys, similarity, u.visual, u.text, validation.text_groups), BETAS)
    u = uncertainty(judge.head, judge.embed(study.test))
    factors = Weights(np.exp(-betas.beta_visual * u.visual), np.exp(-betas.beta_text * u.text))
    return recall_from_embeddings(test, visual_weight=factors.visual, text_weight=factors.text)


BETAS = tuple(round(0.1 * step, 1) for step in range(16))


def figures(results: Sequence[RetrievalResult]) -> dict[str, float]:
    """Mean recalls over seeds, with the deviation of RSum between seeds."""
    mean = mean_result(results)
    row: dict[str, float] = {}
    for side, recalls in (("t2v", mean.text_to_visual), ("v2t", mean.visual_to_text)):
        row |= {f"{side} {cut}": getattr(recalls, cut.replace("@", "").lower()) for cut in CUTS}
    sums = [result.rsum for result in results]
    return row | {"RSum": float(np.mean(sums)), "sd": deviation(sums)}


def mean_scores(study: Study, models: Sequence[Projections]) -> list[tuple[EmbeddingSet, ItemScores]]:
    return [(data := model.embed(study.test), uncertainty(model.head, data)) for model in models]


def pearson(study: Study) -> Findings:
    """Does u follow h? Of heads trained with the projections, and of prototypes fitted on the frozen embeddings."""
    h = analyses.mean_similarity(study.frozen)
    fitted = [analyses.correlation(uncertainty(fitted_head(study, s), study.frozen), h) for s in range(study.seeds)]
    found = {
        "trained with the projections": followed(study, study.models()),
        "without L_uct (control)": followed(study, study.models(**BASELINE)),
        "no head: h against the training part's mean": averaged([carried_over(study, m) for m in study.models()]),
        "fitted on frozen embeddings": averaged(fitted),
    }
    rows = [{"head": name, **row} for name, row in found.items()]
    return Findings(rows, bars=bars(rows, "head", ("PCC_V", "PCC_T")), axes=("", "Pearson correlation of u and h"))


def followed(study: Study, models: Sequence[Projections]) -> dict[str, float]:
    """Correlation of u and h, mean over models."""
    found: dict[str, float] = averaged(
        [analyses.correlation(u, analyses.mean_similarity(data)) for data, u in mean_scores(study, models)]
    )
    return found


def carried_over(study: Study, model: Projections) -> dict[str, float]:
    """How far h itself carries over: similarity with the mean of the training part against h within the test part."""
    known, data = model.embed(study.train), model.embed(study.test)
    learned = ItemScores(data.visual @ known.text.mean(axis=0), data.text @ known.visual.mean(axis=0))
    return analyses.correlation(learned, analyses.mean_similarity(data))


def fitted_head(study: Study, seed: int) -> Any:
    import torch

    data = study.frozen_train
    return fit_prototypes(torch.from_numpy(data.visual), torch.from_numpy(data.text), seed=seed)


def bars(rows: Sequence[Mapping[str, Any]], name: str, columns: Sequence[str]) -> Bars:
    return {column: [(row[name], row[column]) for row in rows] for column in columns}


def short(direction: Direction) -> str:
    return "v2t" if direction == "visual_to_text" else "t2v"


def removal(study: Study) -> Findings:
    """Figure 3: R@1 of the baseline without the r most uncertain by PAU, against random removal and removal by h.

    u follows h, as in the paper, or for "retrieval" how much of the batch fits.
    """
    runs, galleries = [], []
    for plain, model, other in zip(study.models(**BASELINE), study.models(), study.models(**RETRIEVAL), strict=True):
        baseline = plain.embed(study.test)
        orders = {
            "uncertainty": uncertainty(model.head, model.embed(study.test)),
            "uncertainty (retrieval)": uncertainty(other.head, other.embed(study.test)),
            "mean similarity": analyses.mean_similarity(baseline),
        }
        runs.append({d: analyses.removal_curve(baseline, orders, d) for d in DIRECTIONS})
        galleries.append({d: analyses.gallery_removal_curve(baseline, orders, d) for d in DIRECTIONS})
    rows: list[dict[str, Any]] = []
    series: Series = {}
    for direction, curve in averaged(runs).items():
        rows += [{"direction": short(direction), **row} for row in curve]
        for name in (*orders, "random"):
            series[f"{short(direction)} {name}"] = [(row["share"], row[name]) for row in curve]
    return Findings(rows, series, axes=("share removed", "R@1"), details={"gallery_only": averaged(galleries)})


def trust(study: Study) -> Findings:
    """Figure 4: PAU against the baseline on the r most uncertain samples alone, for each target of u."""
    size = len(study.test.visual)
    sizes = [round(size * share) for share in (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)]
    rows: list[dict[str, Any]] = []
    series: Series = {}
    for target, changes in (("h", {}), ("retrieval", RETRIEVAL)):
        runs = []
        for baseline, model in zip(study.models(**BASELINE), study.models(**changes), strict=True):
            models = {"PAU": model.embed(study.test), "baseline": baseline.embed(study.test)}
            u = uncertainty(model.head, models["PAU"])
            runs.append({d: analyses.uncertain_subsets(models, u, d, sizes) for d in DIRECTIONS})
        for direction, found in averaged(runs).items():
            side = {"direction": short(direction), "target": target}
            rows += [{**side, **row, "gain": row["PAU"] - row["baseline"]} for row in found]
            for name in ("PAU", "baseline"):
                series[f"{short(direction)} {name}, u by {target}"] = [(row["samples"], row[name]) for row in found]
    return Findings(rows, series, axes=("most uncertain samples", "R@1"))


def deciles(study: Study) -> Findings:
    """Recall by tenths of uncertainty and of h, and how well each predicts failure."""
    found = averaged([failure_prediction(data, u) for data, u in mean_scores(study, study.models())])
    rows = [
        {
            "direction": name.partition(" ")[0],
            "score": name.partition(" ")[2],
            "lowest tenth": tenths[0]["recall"],
            "highest tenth": tenths[-1]["recall"],
            "AUROC of failing": found["calibration"][name]["auroc"],
            "Brier": found["calibration"][name]["brier"],
            "Brier of the mean": found["calibration"][name]["brier_constant"],
            "calibration error": found["calibration"][name]["expected_error"],
        }
        for name, tenths in found["tenths"].items()
    ]
    series = {name: [(b["bin"], b["recall"]) for b in tenths] for name, tenths in found["tenths"].items()}
    return Findings(rows, series, axes=("tenth of the score", "R@1"), details={"calibration": found["calibration"]})


def failure_prediction(data: EmbeddingSet, u: ItemScores) -> dict[str, dict[str, Any]]:
    """Of one model: recall by tenths and calibration, under names such as "v2t uncertainty"."""
    found: dict[str, dict[str, Any]] = {"tenths": {}, "calibration": {}}
    for direction in DIRECTIONS:
        hit = analyses.ranks(data, direction).hit(1)
        for name, scores in {"uncertainty": u, "mean similarity": analyses.mean_similarity(data)}.items():
            side = scores.visual if direction == "visual_to_text" else scores.text
            found["tenths"][f"{short(direction)} {name}"] = analyses.recall_by_bin(side, hit)
            found["calibration"][f"{short(direction)} {name}"] = analyses.calibration(side, hit).to_dict()
    return found


def ablation(study: Study) -> Findings:
    """Table 5: L_uct, L_div and re-ranking, one after another."""
    pau = study.models()
    rows = []
    drawn: Bars = {"plain": [], "re-ranked": []}
    for changes, uct, div in ((BASELINE, False, False), ({"weight_diversity": 0.0}, True, False), ({}, True, True)):
        models = study.models(**changes)
        judges = models if uct else pau  # the paper re-ranks its baseline with the uncertainties of PAU
        again = [reranked(study, model, judge) for model, judge in zip(models, judges, strict=True)]
        for name, results in ((False, study.results(models)), (True, again)):
            rows.append({"L_uct": uct, "L_div": div, "re-rank": name, **figures(results)})
            setting = "L_uct, L_div" if div else "L_uct" if uct else "neither L_uct nor L_div"
            drawn["re-ranked" if name else "plain"].append((setting, rows[-1]["RSum"]))
    return Findings(rows, bars=drawn, axes=("", "RSum"))


def compared(study: Study, variants: Mapping[str, dict[str, Any]]) -> Findings:
    """Variants of PAU, each plain; the correlation of u and h tells what the prototypes learned."""
    rows = []
    for name, changes in {"without PAU": BASELINE, **variants}.items():
        models = study.models(**changes)
        rows.append({"setting": name, **figures(study.results(models)), **followed(study, models)})
    return Findings(rows, bars=bars(rows, "setting", ("RSum",)), axes=("", "RSum"))


def prototypes(study: Study) -> Findings:
    counts = (1, 4, 8, 12, 16)
    rows = compared(study, {f"K = {k}": {"prototypes": k} for k in counts}).rows
    series: Series = {
        "PAU": [(k, row["RSum"]) for k, row in zip(counts, rows[1:], strict=True)],
        "without PAU": [(k, rows[0]["RSum"]) for k in counts],
    }
    return Findings(rows, series, axes=("prototypes K", "RSum"))


def evidence(study: Study) -> Findings:
    return compared(study, {name: {"evidence": name} for name in ("relu", "softplus", "exp")})


def init(study: Study) -> Findings:
    names = ("kaiming_uniform", "kaiming_normal", "orthogonal", "xavier")
    return compared(study, {name: {"init": name} for name in names})


def noise(study: Study) -> Findings:
    """Training on shuffled captions: baseline, PAU, and pairs weighted by 1 - p_mismatch, alone and with PAU."""
    rows: list[dict[str, Any]] = []
    for share in (0.0, 0.2, 0.5):
        found: dict[str, list[RetrievalResult]] = {}
        quality = []
        for seed in range(study.seeds):
            pairs, wrong = shuffle_captions(study.train, share, seed)
            p, pi0 = cross_fitted_mismatch(pairs, replace(study.settings, seed=seed, **BASELINE))
            quality.append((pi0, auroc(p, wrong.astype(float)) if share else float("nan")))
            for name, changes, weights in (
                ("baseline", BASELINE, None),
                ("PAU", {}, None),
                ("1 - p_mismatch", BASELINE, 1 - p),
                ("PAU, 1 - p_mismatch", {}, 1 - p),
            ):
                model = train(pairs, replace(study.settings, seed=seed, **changes), weights)
                found.setdefault(name, []).append(recall_from_embeddings(model.embed(study.test)))
        estimated, separation = np.mean(quality, axis=0)
        for name, results in found.items():
            known = {"pi0": float(estimated), "AUROC of p": float(separation)} if "p_mismatch" in name else {}
            rows.append(
                {"shuffled": share, "method": name, **figures(results), "pi0": None, "AUROC of p": None, **known}
            )
    series = {
        name: [(row["shuffled"], row["RSum"]) for row in rows if row["method"] == name]
        for name in dict.fromkeys(row["method"] for row in rows)
    }
    return Findings(rows, series, axes=("share of shuffled captions", "RSum"))


def cross_fitted_mismatch(pairs: FeaturePairs, config: ProjectionTraining) -> tuple[Array, float]:
    """p_mismatch of every pair from a model that has not seen it: trained on one half of the media, asked on the other.

    No clean pair is needed, and no wrong one can have been learned by heart by the model that judges it.
    """
    half = pairs.owners % 2 == 0
    p = np.zeros(len(pairs.owners))
    shares = []
    for mine in (half, ~half):
        other = replace(pairs, text=pairs.text[~mine], owners=pairs.owners[~mine])
        model = train(other, config)
        data = model.embed(pairs)
        owners = pairs.owners[mine]
        media, text = data.media.take(owners), data.text[mine]
        rows = sampled_media(owners, REFERENCE_PAIRS, config.seed)
        scale = float(model.log_scale.detach().exp())
        everything = pairs_as_arrays(media, text, owners, scale)
        reference = everything.take(rows)
        found = fit_mismatch(reference, seed=config.seed, captions=len(pairs.owners), draws=20_000)
        if found is None or found.judge is None:
            raise EvaluationError(f"{len(owners)} pairs are too few to tell mismatched pairs from others")
        measured = measure(everything.media, text, owners, reference, hubs=found.judge.hubs)
        p[mine] = found.p(judged(found.judge, everything, measured))
        shares.append(found.pi0)
    return p, float(np.mean(shares))


def pairs_as_arrays(media: MediaVectors, text: Array, owners: Array, scale: float) -> Reference:
    """Pairs with the other captions of their media."""
    siblings = siblings_of(owners, text, media.own_similarity(text))
    return Reference(media, text, owners, scale, siblings=siblings)


def sampled_media(owners: Array, pairs: int, seed: int) -> Array:
    """Rows of random media with all their captions, at most so many; every row where they are no more.

    Whole media: a swapped caption then meets its true medium as often as the sample covers the corpus (`fit_mismatch`).
    """
    if len(owners) <= pairs:
        return np.arange(len(owners))
    media, captions = np.unique(owners, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(media))
    return np.flatnonzero(np.isin(owners, media[order[np.cumsum(captions[order]) <= pairs]]))


def complexity(_: Study | None = None) -> Findings:
    """Parameters and operations of ViT-B/32 with 12 frames: all of them, and those the paper's counter saw."""
    found = count()
    short = count(tokens=24)
    rows = [
        {"count": "everything", "parameters (M)": found.parameters / 1e6, "FLOPs (G)": found.flops / 1e9},
        {
            "count": "everything, a multiply-add once",
            "parameters (M)": found.parameters / 1e6,
            "FLOPs (G)": found.flops / 2e9,
        },
        {
            "count": "linear and convolution layers only, 32 tokens",
            "parameters (M)": found.visible_parameters / 1e6,
            "FLOPs (G)": found.visible_macs / 1e9,
        },
        {
            "count": "linear and convolution layers only, 24 tokens",
            "parameters (M)": short.visible_parameters / 1e6,
            "FLOPs (G)": short.visible_macs / 1e9,
        },
        {"count": "the PAU head", "parameters (M)": found.parameters_head / 1e6, "FLOPs (G)": found.flops_head / 1e9},
    ]
    drawn = bars(rows, "count", ("parameters (M)", "FLOPs (G)"))
    return Findings(rows, bars=drawn, axes=("", "parameters (M), FLOPs (G)"), details={"count": found.to_dict()})


STUDIES: dict[str, Callable[[Study], Findings]] = {
    "pearson": pearson,
    "removal": removal,
    "trust": trust,
    "deciles": deciles,
    "ablation": ablation,
    "prototypes": prototypes,
    "evidence": evidence,
    "init": init,
    "noise": noise,
}
