"""`auditor certify --recalibrate`: fit a correction of p_mismatch to the labels of a sample and save it in the audit.

The correction is one small file, corrected.json. The view computes the corrected column from it, so nothing is
rewritten, and deleting the file undoes it. Scoring the audit again invalidates it.
"""

from typing import Any

import numpy as np

from auditor.audit_folder.correction import FILE, fingerprint_statistics
from auditor.audit_folder.folder import Folder
from auditor.keep.thresholds import load_mismatch_models
from auditor.query.database import AuditDatabase
from auditor.query.row_queries import read_rows_by_uid
from auditor.review.correction_map import Correction, build_features, fit_correction, predict_mismatch
from auditor.review.label_sample import CertifyError, LabelSample, select_fair_marks
from auditor.review.review_queues import fetch_score_moments
from auditor.score.statistics.mismatch import INTERVAL, MismatchModel


def recalibrate(database: AuditDatabase, sample: LabelSample, marks: list[str | None]) -> Correction | None:
    """Fit and save a correction; None, and no change, if the labels agree with p_mismatch."""
    if database.files.correction is not None:
        raise CertifyError(f"{database.path} is already corrected; undo that first with --undo")
    label_rows = fetch_judged_rows(database, sample, marks)
    moments = fetch_score_moments(database)
    mean = {row["kind"]: row["m"] for row in moments}
    spread = {row["kind"]: row["ms"] or 1.0 for row in moments}
    z = np.array([(row["score"] - mean[row["kind"]]) / spread[row["kind"]] for row in label_rows])
    correction = fit_correction(
        np.array([row["p"] for row in label_rows], np.float64),
        z,
        np.array([row["bad"] for row in label_rows], bool),
        np.array([row["weight"] for row in label_rows], np.float64),
        mean,
        spread,
    )
    if correction is not None:
        save_correction(database, sample, correction)
    return correction


def remove_correction(audit: str) -> None:
    """Remove the correction, even if it cannot be read."""
    Folder(audit).remove(FILE)


def fetch_judged_rows(database: AuditDatabase, sample: LabelSample, marks: list[str | None]) -> list[dict[str, Any]]:
    """p, score and label of the decided rows, and the number of rows of the corpus that each represents."""
    decided = {
        (row.uid, row.caption_index): (row.stratum, mark)
        for row, mark in zip(sample.rows, select_fair_marks(marks), strict=True)
        if mark in ("good", "bad")
    }
    count = np.bincount([stratum for stratum, _ in decided.values()], minlength=len(sample.strata))
    columns = "kind, p_mismatch AS p, mismatch_score AS score"
    rows = read_rows_by_uid(database, (uid for uid, _ in decided), columns)
    return [
        {**row, "bad": mark == "bad", "weight": sample.strata[stratum].rows / count[stratum]}
        for place, (stratum, mark) in decided.items()
        if (row := rows.get(place)) and row["p"] is not None
    ]


def save_correction(database: AuditDatabase, sample: LabelSample, correction: Correction) -> None:
    models = load_mismatch_models(database.statistics)
    database.files.folder.write_json(
        FILE,
        {
            "sample": sample.name,
            "of": fingerprint_statistics(database.manifest),
            "map": correction.to_dict(),
            "statistics": {kind: correct_statistics(model, kind, correction) for kind, model in models.items()},
        },
    )


def correct_statistics(model: MismatchModel, kind: str, correction: Correction) -> dict[str, Any]:
    """The statistics of a kind's mismatch model after the correction; intervals include the labels' uncertainty.

    If groups were calibrated by themselves, their curves are corrected, and the share is the mean of their shares.
    """
    if model.groups:
        groups = {name: correct_statistics(group, kind, correction) for name, group in model.groups.items()}
        weight = np.array([group.pairs for group in model.groups.values()], np.float64)
        shares = {
            name: float(np.average([group[name] for group in groups.values()], weights=weight))
            for name in ("pi0", "pi0_low", "pi0_high")
        }
        return {**groups[""], **shares, "groups": groups}
    z = correction.z(kind, model.score)
    curve = correction.p(model.curve, z)
    rounds = max(len(model.bootstrap), 1)
    bootstrap = model.bootstrap if len(model.bootstrap) else model.curve[None]
    drawn = zip(correction.resample(rounds), bootstrap, strict=True)
    curves = np.array([predict_mismatch(weights, build_features(p, z)) for weights, p in drawn])
    middle = (model.edges[1:] + model.edges[:-1]) / 2
    share, *shares_drawn = (float(model.observed @ np.interp(middle, model.score, p)) for p in (curve, *curves))
    low, high = np.quantile(shares_drawn, INTERVAL)
    return {
        "pi0": share,
        "pi0_low": float(min(low, share)),
        "pi0_high": float(max(high, share)),
        "curve": {"score": model.score.tolist(), "p": curve.tolist()},
        "bootstrap": np.round(curves, 5).tolist(),
    }
