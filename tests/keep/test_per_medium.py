"""Rules on media, compared with a naive implementation."""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from auditor.python_api import Audit
from tests.support.synthetic import write_corpus_audit

LIMIT = 0.25
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    return Audit(write_corpus_audit(tmp_path_factory.mktemp("media"), captions=5)[0])


def media(audit: Audit) -> dict[str, Rows]:
    found: dict[str, Rows] = defaultdict(list)
    for row in audit.sql("SELECT * FROM samples WHERE status = 'ok'").to_pylist():
        found[row["key"]].append(row)
    return found


def is_good(row: dict[str, Any]) -> bool:
    return bool(row["p_mismatch"] <= np.float32(0.1) and row["similarity"] >= np.float32(LIMIT))


def keep_naively(rows: Rows, rule: str | None) -> Rows:
    if rule is None:
        return [row for row in rows if is_good(row)]
    p, similarity = ([row[name] for row in rows] for name in ("p_mismatch", "similarity"))
    decide = {
        "any": any(map(is_good, rows)),
        "all": all(map(is_good, rows)),
        "mean": np.mean(p) <= 0.1 and np.mean(similarity) >= LIMIT,
        "worst": max(p) <= np.float32(0.1) and min(similarity) >= np.float32(LIMIT),
    }
    return rows if decide[rule] else []


@pytest.mark.parametrize("rule", [None, "any", "all", "mean", "worst"])
def test_media_are_decided_on_together(audit: Audit, rule: str | None) -> None:
    kept = audit.keep(max_p_mismatch=0.1, min_similarity=LIMIT, per_medium=rule)
    expected = [keep_naively(rows, rule) for rows in media(audit).values()]
    assert sorted(kept.uids.to_pylist()) == sorted(row["uid"] for rows in expected for row in rows)
    assert kept.media == sum(1 for rows in expected if rows)
    assert sum(len(table["uids"][i]) for table in tables(kept) for i in range(len(table))) == kept.count
    effects = audit.rule_effects(kept.rules)
    assert effects.kept == effects.together.kept == kept.count > 0


def tables(kept: Any) -> list[Any]:
    return [kept.shard(shard).table for shard, _ in kept.by_shard()]


def test_one_caption_must_meet_all_rules(audit: Audit) -> None:
    """With `any`, a medium whose captions meet different rules, but none all of them, is removed with a reason."""
    rules = {"where": "caption_index = 0 OR similarity < 0", "max_p_mismatch": 0.05, "per_medium": "any"}
    split = [
        key
        for key, rows in media(audit).items()
        if rows[0]["p_mismatch"] > 0.06 and min(row["p_mismatch"] for row in rows) < 0.04
    ]
    kept = audit.keep(**rules)
    assert split and not set(split) & set(kept.keys.to_pylist())
    reason = audit.database.rows(f"SELECT DISTINCT {kept.reasons} AS r FROM measured WHERE key = '{split[0]}'")
    assert reason == [{"r": "per_medium"}]


def test_the_best_media_are_kept_whole(audit: Audit) -> None:
    worst = {key: min(row["similarity"] for row in rows) for key, rows in media(audit).items()}
    kept = audit.keep(keep_top=7, by="similarity", per_medium="worst")
    assert set(kept.keys.to_pylist()) == set(sorted(worst, key=lambda key: -worst[key])[:7])
    assert kept.count == 7 * 5


def test_conditions_still_choose_captions(audit: Audit) -> None:
    kept = audit.keep(max_p_mismatch=0.5, where="caption_index < 2", per_medium="mean")
    assert kept.count == 2 * kept.media > 0
    marked = audit.keep(where="review IS NULL", per_medium="all")  # a mark is looked up in another table
    assert marked.count == audit.counts["status"]["ok"] and len(list(marked.samples())) == marked.media
