"""Numbers of occurrences of captions, compared with those of a dictionary."""

from collections import Counter
from pathlib import Path

import numpy as np

from auditor import Audit
from auditor.score.corpus_statistics import count_hashes
from auditor.sweep.caption_facts import hash_caption
from tests.support.planted import make_captions, make_embeddings, write_planted


def test_counts_are_those_of_a_dictionary() -> None:
    hashes = np.random.default_rng(0).integers(0, 50, 80) * 10**15
    counted = Counter(hashes.tolist())
    assert count_hashes(hashes).look_up(hashes).tolist() == [counted[value] for value in hashes.tolist()]
    assert count_hashes(np.arange(3)).look_up(np.array([1, 7])).tolist() == [1, 1]


def test_the_column_counts_usable_rows_over_all_shards(tmp_path: Path) -> None:
    captions = make_captions(120)
    for i in (3, 50, 110, 119):
        captions[i] = f"Buy now, number {i}!"
    write_planted(tmp_path / "audit", *make_embeddings(120), shards=3, captions=captions, broken=[119])
    rows = Audit(tmp_path / "audit").sql("SELECT key, caption_count FROM samples ORDER BY key").to_pylist()
    found = {row["key"]: row["caption_count"] for row in rows}
    assert [found[f"s{i:06d}"] for i in (3, 50, 110, 119, 4)] == [3, 3, 3, None, 1]
    assert hash_caption(captions[3]) == hash_caption(captions[50])
