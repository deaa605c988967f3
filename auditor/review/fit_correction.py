"""`auditor certify --recalibrate`: fit the correction of p_mismatch to the marks of a sample and keep it in the audit.

The correction is one small file, corrected.json; the view computes the corrected column from it, so nothing is
rewritten and deleting the file undoes it. Scoring the audit again makes it void.
"""

from typing import Any

import numpy as np

from auditor.audit_folder.correction import FILE, mark_of
from auditor.audit_folder.folder import Folder
from auditor.keep.thresholds import models_of
from auditor.query.database import AuditDatabase
from auditor.query.sandbox import literal
from auditor.review.label_sample import CertifyError, Sample, fair_marks
from auditor.review.recalibration import Correction, features, fit_correction, sigmoid
from auditor.score.statistics.mismatch import INTERVAL, MismatchModel


def recalibrate(database: AuditDatabase, sample: Sample, marks: list[str | None]) -> Correction | None:
    """Fit and keep; None where the labels agree with p_mismatch, and nothing is changed."""
    if database.files.correction is not None:
        raise CertifyError(f"{database.path} is corrected already; --undo takes it back first")
    judged = judged_rows(database, sample, marks)
    moments = score_moments(database)
    mean = {kind: found[0] for kind, found in moments.items()}
    spread = {kind: found[1] for kind, found in moments.items()}
    z = np.array([(row["score"] - mean[row["kind"]]) / spread[row["kind"]] for row in judged])
    correction = fit_correction(
        np.array([row["p"] for row in judged], np.float64),
        z,
        np.array([row["bad"] for row in judged], bool),
        np.array([row["weight"] for row in judged], np.float64),
        mean,
        spread,
    )
    if correction is not None:
        keep(database, sample, correction)
    return correction


def undo(audit: str) -> None:
    """Also of a correction that cannot be read."""
    Folder(audit).remove(FILE)


def judged_rows(database: AuditDatabase, sample: Sample, marks: list[str | None]) -> list[dict[str, Any]]:
    """p, score and mark of the decided rows, and how many rows of the corpus each stands for."""
    decided = {
        (row.uid, row.caption_index): (row.stratum, mark)
        for row, mark in zip(sample.rows, fair_marks(marks), strict=True)
        if mark in ("good", "bad")
    }
    count = np.bincount([stratum for stratum, _ in decided.values()], minlength=len(sample.strata))
    uids = ", ".join(sorted({literal(uid) for uid, _ in decided})) or "''"
    found = database.rows(
        "SELECT uid, caption_index, kind, p_mismatch AS p, mismatch_score AS score FROM measured "
        f"WHERE uid IN ({uids}) AND p_mismatch IS NOT NULL"
    )
    rows = []
    for row in found:
        stratum, mark = decided.get((row["uid"], row["caption_index"]), (0, None))
        if mark is not None:
            rows.append({**row, "bad": mark == "bad", "weight": sample.strata[stratum].rows / count[stratum]})
    return rows


def score_moments(database: AuditDatabase) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of mismatch_score by kind."""
    found = database.rows(
        f"SELECT kind, avg(mismatch_score) AS mean, stddev_pop(mismatch_score) AS spread FROM {database.table()} "
        "WHERE status = 'ok' AND mismatch_score IS NOT NULL GROUP BY kind ORDER BY kind"
    )
    return {row["kind"]: (row["mean"], row["spread"] or 1.0) for row in found}


def keep(database: AuditDatabase, sample: Sample, correction: Correction) -> None:
    """Write the file: the map, and what follows from it for shares and cut-offs."""
    models = models_of(database.manifest.get("statistics") or {})
    database.files.folder.write_json(
        FILE,
        {
            "sample": sample.name,
            "of": mark_of(database.manifest),
            "map": correction.to_dict(),
            "statistics": {kind: corrected(model, kind, correction) for kind, model in models.items()},
        },
    )


def corrected(model: MismatchModel, kind: str, correction: Correction) -> dict[str, Any]:
    """The numbers of a kind's mismatch model after the correction; its intervals hold the labels' uncertainty too."""
    z = correction.z(kind, model.score)
    curve = correction.p(model.curve, z)
    rounds = max(len(model.bootstrap), 1)
    given = model.bootstrap if len(model.bootstrap) else model.curve[None]
    drawn = zip(correction.resampled(rounds), given, strict=True)
    curves = np.array([sigmoid(weights, features(one, z)) for weights, one in drawn])
    middle = (model.edges[1:] + model.edges[:-1]) / 2
    shares = [float(model.observed @ np.interp(middle, model.score, one)) for one in curves]
    share = float(model.observed @ np.interp(middle, model.score, curve))
    low, high = np.quantile(shares, INTERVAL)
    return {
        "pi0": share,
        "pi0_low": float(min(low, share)),
        "pi0_high": float(max(high, share)),
        "curve": {"score": model.score.tolist(), "p": curve.tolist()},
        "bootstrap": np.round(curves, 5).tolist(),
    }
