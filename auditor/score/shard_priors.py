"""Shard priors: in a shard with many mismatches, a pair is more likely mismatched than its own score says.

p_mismatch uses the share of mismatches in the whole corpus. Shards whose own share is an outlier
(auditor/score/group_shares.py) are rescored with their share: by Bayes' rule, the odds are multiplied by the ratio of
the prior odds. All other shards stay unchanged, so that nothing changes if mismatches are spread evenly. A calibration
group has used its own share already: only what the share of the shard adds to that counts.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from auditor.audit_folder.folder import Folder
from auditor.score.group_shares import FEWEST_GROUPS, Doubles, estimate_group_shares, fit_prior_strength
from auditor.score.statistics.mismatch import SMALLEST_P, compute_log_odds
from auditor.vectors import Floats
from auditor.workers.process_pool import SERIAL, Engine

EDGES = np.linspace(-14, 14, 113)  # bins of log odds
ROUNDS = 50  # of expectation maximization
Priors = Mapping[str, float]  # shard -> shift of the log odds
Excess = Mapping[tuple[str, str | None], float]  # kind, calibration group -> its log odds above those of the corpus


def find_priors(folder: Folder, files: Mapping[str, str], excess: Excess, engine: Engine = SERIAL) -> dict[str, float]:
    """The shifts of the log odds for outlier shards; `files` are the sample files of the shards."""
    names = sorted(files)
    if len(names) < FEWEST_GROUPS:
        return {}
    counts = np.stack(list(engine.each(partial(count_log_odds, folder, excess), [files[name] for name in names])))
    return compute_priors(names, counts)


def count_log_odds(folder: Folder, excess: Excess, file: str) -> npt.NDArray[np.int64]:
    """Histogram of the log odds of a mismatch over the pairs of a shard, without the share of their groups."""
    if not folder.exists(file):
        return np.zeros(len(EDGES) - 1, np.int64)
    table = folder.read_table(file, ["p_mismatch", *(("kind", "calibration_group") if excess else ())])
    table = table.filter(table["p_mismatch"].is_valid())
    odds = compute_log_odds(table["p_mismatch"].to_numpy().astype(np.float64))
    if excess:
        groups = zip(table["kind"].to_pylist(), table["calibration_group"].to_pylist(), strict=True)
        odds = odds - [excess.get(group, 0.0) for group in groups]
    return np.histogram(np.clip(odds, EDGES[0], EDGES[-1]), EDGES)[0]


def compute_priors(names: Sequence[str], counts: npt.NDArray[np.int64]) -> dict[str, float]:
    """The shifts of outlier shards, from the histograms (S, B) of all shards."""
    odds = (EDGES[1:] + EDGES[:-1]) / 2  # (B,)
    rows = counts.sum(axis=1).astype(np.float64)
    filled = np.flatnonzero(rows > 0)
    if len(filled) < FEWEST_GROUPS:
        return {}
    counts, rows = counts[filled], rows[filled]
    events = counts @ logistic(odds)
    shares, typical = estimate_group_shares([names[shard] for shard in filled.tolist()], events, rows)
    corpus_odds = compute_log_odds(np.array([float(events.sum() / rows.sum())]))
    shifts = (compute_log_odds(estimate_shard_shares(counts, odds, rows)) - corpus_odds).tolist()
    outliers = [(share.group, shift) for share, shift in zip(shares, shifts, strict=True) if share.stands_out(typical)]
    return {shard: round(shift, 4) for shard, shift in outliers if shift > 0}


def estimate_shard_shares(counts: npt.NDArray[np.int64], odds: Doubles, rows: Doubles) -> Doubles:
    """The share of mismatches of each shard (S,), shrunk toward the corpus: expectation maximization.

    E-step: p of every pair under its shard's share (Bayes' rule); M-step: shrunk mean of p.
    """
    p = logistic(odds)[None, :]
    base = compute_log_odds(np.array([float((counts * p).sum() / rows.sum())]))
    share = rows * 0 + logistic(base)
    for _ in range(ROUNDS):
        events = (counts * logistic(odds + (compute_log_odds(share) - base)[:, None])).sum(axis=1)
        mean, strength = events.sum() / rows.sum(), fit_prior_strength(events, rows)
        share = (events + strength * mean) / (rows + strength)
    return share


def logistic(odds: Doubles) -> Doubles:
    return np.asarray(1 / (1 + np.exp(-odds)), np.float64)


def shift_log_odds(p: Floats, shift: float) -> Floats:
    """p with `shift` added to its log odds; probabilities of 0 and 1 do not change."""
    shifted = logistic(compute_log_odds(p.astype(np.float64)) + shift)
    return np.where((p <= SMALLEST_P) | (p >= 1 - SMALLEST_P), p, shifted).astype(np.float32)
