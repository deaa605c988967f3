"""Captions from one template are one group, whatever their names; natural captions of like media are none."""

import tracemalloc
from pathlib import Path

import numpy as np

from auditor import Audit
from auditor.faults.captions import signatures
from auditor.faults.near_captions import agreement, near_groups, read_captions, shard_templates
from auditor.store.folder import Folder
from tests.support.planted import invented, write_planted

NAMES = ("ann", "bob", "cleo", "dan", "eve", "finn", "gus", "hal", "ida", "jo")
SHARDS = ["00000", "00001", "00002"]


def captions(count: int) -> list[str]:
    """All different, no two with a pair of words in common; the vectors know nothing of the words."""
    return [f"w{chr(97 + i % 26)}{chr(97 + i // 26)} is x{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(count)]


def templates(path: Path, each: int = 10) -> Path:
    texts = captions(300)
    for number in range(3 * each):
        place = number % 3 * 100 + 5 + number // 3  # the same number in every shard
        texts[place] = f"portrait of {NAMES[number % 10]} {NAMES[number // 10]} free stock photo on white background"
    write_planted(path, *invented(300, 9), shards=3, captions=texts)
    return path


def test_a_template_is_one_fault_of_all_shards(tmp_path: Path) -> None:
    found = [fault for fault in Audit(templates(tmp_path)).faults() if fault.kind == "caption"]
    assert [(fault.pattern, fault.rows) for fault in found] == [("boilerplate", 30)]
    assert "nearly the same caption on unlike media" in found[0].sentence and "free stock photo" in found[0].sentence


def test_few_uses_are_no_pattern(tmp_path: Path) -> None:
    assert near_groups(Folder(templates(tmp_path, each=1)), SHARDS) == ([], {})


def test_near_captions_of_like_media_are_plain_descriptions(tmp_path: Path) -> None:
    visual, text = invented(300, 10)
    texts = captions(300)
    for place in range(0, 300, 15):
        texts[place], visual[place] = f"a {NAMES[place % 10]} dog runs on the green grass of the park", visual[0]
    write_planted(tmp_path, visual, text, shards=3, captions=texts)
    groups, vectors = near_groups(Folder(tmp_path), SHARDS)
    assert [group.rows for group in groups] == [20] and set(groups[0].members) <= set(vectors)
    assert not [fault for fault in Audit(tmp_path).faults() if fault.pattern == "boilerplate"]


def test_captions_with_nearly_the_same_vector_are_near(tmp_path: Path) -> None:
    visual, text = invented(300, 11)
    text[20:30] = text[20]
    write_planted(tmp_path, visual, text, shards=3, captions=captions(300))
    (template,) = shard_templates(Folder(tmp_path), "00000")
    assert template.rows == 10
    (group,), _ = near_groups(Folder(tmp_path), SHARDS)
    assert group.rows == 10


def test_equal_captions_are_read_once(tmp_path: Path) -> None:
    texts = ["one thing"] * 40 + captions(60)
    write_planted(tmp_path, *invented(100, 12), captions=texts, broken=[3])
    found = read_captions(Folder(tmp_path), "00000")
    assert len(found.texts) == 61 and found.rows.sum() == 99 and found.rows.max() == 39


def test_agreement_is_the_share_of_equal_hashes() -> None:
    found = signatures(["a b c d", "a b c e", "x y z"])
    expected = [[(one == other).mean() for other in found] for one in found]
    assert np.allclose(agreement(found, found), expected)


def test_one_long_caption_does_not_lengthen_the_others(tmp_path: Path) -> None:
    texts = captions(300)
    texts[7] = "word " * 100_000
    write_planted(tmp_path, *invented(300, 9), shards=1, captions=texts)
    tracemalloc.start()
    found = read_captions(Folder(tmp_path), "00000")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert texts[7].strip() in {text.strip() for text in found.texts} and len(found.texts) == 300
    assert peak < 50e6
