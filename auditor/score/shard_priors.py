"""Where mismatches sit in few shards, a pair of such a shard is likelier mismatched than its own score says.

p_mismatch rests on the share of mismatches in the whole corpus. Shards whose own share stands out
(auditor/score/group_shares.py) are scored again with theirs: Bayes' rule, the odds times the ratio of the prior odds.
All others stay as they are, so that nothing changes where noise is spread evenly.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from auditor.audit_folder.folder import Folder
from auditor.score.group_shares import FEWEST_GROUPS, Doubles, prior_strength, shares
from auditor.score.pair_sample import Each, in_turn
from auditor.vectors import Floats

LEAST = 1e-6  # p is never surer than that
EDGES = np.linspace(-14, 14, 113)  # log-odds
ROUNDS = 50  # of expectation and maximisation
Priors = Mapping[str, float]  # shard -> log-odds to add


def find_priors(folder: Folder, files: Mapping[str, str], each: Each = in_turn) -> dict[str, float]:
    """What to add to the log-odds of the pairs of shards that stand out; `files` are the samples of each shard."""
    names = sorted(files)
    if len(names) < FEWEST_GROUPS:
        return {}
    counts = np.stack(list(each(partial(count_odds, folder), [files[name] for name in names])))
    return priors_of(names, counts)


def count_odds(folder: Folder, file: str) -> npt.NDArray[np.int64]:
    """How many pairs of a shard have which log-odds of being mismatched."""
    if not folder.exists(file):
        return np.zeros(len(EDGES) - 1, np.int64)
    p = folder.read_table(file, ["p_mismatch"])["p_mismatch"].drop_null().to_numpy()
    return np.histogram(np.clip(log_odds(p.astype(np.float64)), EDGES[0], EDGES[-1]), EDGES)[0]


def priors_of(names: Sequence[str], counts: npt.NDArray[np.int64]) -> dict[str, float]:
    """From the counts (S, B) of all shards."""
    odds = (EDGES[1:] + EDGES[:-1]) / 2  # (B,)
    rows = counts.sum(axis=1).astype(np.float64)
    some = rows > 0
    if some.sum() < FEWEST_GROUPS:
        return {}
    counts, rows = counts[some], rows[some]
    listed, usual = shares(
        [name for name, there in zip(names, some, strict=True) if there], counts @ logistic(odds), rows
    )
    whole = float((counts @ logistic(odds)).sum() / rows.sum())
    shift = log_odds(own_shares(counts, odds, rows)) - log_odds(np.array([whole]))
    found = zip(listed, shift.tolist(), strict=True)
    return {share.group: round(more, 4) for share, more in found if more > 0 and share.stands_out(usual)}


def own_shares(counts: npt.NDArray[np.int64], odds: Doubles, rows: Doubles) -> Doubles:
    """The share of mismatches of each shard (S,), shrunk towards the whole: expectation and maximisation."""
    p = logistic(odds)[None, :]
    base = log_odds(np.array([float((counts * p).sum() / rows.sum())]))
    share = rows * 0 + logistic(base)
    for _ in range(ROUNDS):
        events = (counts * logistic(odds + (log_odds(share) - base)[:, None])).sum(axis=1)
        whole, strength = events.sum() / rows.sum(), prior_strength(events, rows)
        share = (events + strength * whole) / (rows + strength)
    return share


def log_odds(p: Doubles) -> Doubles:
    bounded = np.clip(p, LEAST, 1 - LEAST)
    return np.asarray(np.log(bounded / (1 - bounded)), np.float64)


def logistic(odds: Doubles) -> Doubles:
    return np.asarray(1 / (1 + np.exp(-odds)), np.float64)


def sharpened(p: Floats, shift: float) -> Floats:
    """p with `shift` added to its log-odds; what is certain stays so."""
    new = logistic(log_odds(p.astype(np.float64)) + shift)
    return np.where((p <= LEAST) | (p >= 1 - LEAST), p, new).astype(np.float32)
