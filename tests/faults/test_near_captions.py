"""Captions from one template form one group; natural captions of similar media do not."""

import tracemalloc
from collections.abc import Callable
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor import Audit
from auditor.audit_folder.embeddings import build_nullable_vectors
from auditor.audit_folder.folder import Folder
from auditor.faults import near_captions
from auditor.faults.corpus_window import read_window
from auditor.faults.near_captions import (
    CORE,
    COUNTED,
    MEMBERS,
    MOST_TEMPLATES,
    SHARED,
    SIMILAR_TEXT,
    CaptionTemplate,
    compare_characters,
    compare_vectors,
    count_distinct_captions,
    count_template_uses,
    estimate_jaccard,
    find_near_groups,
    find_shard_templates,
    merge_templates,
    read_media_vectors,
    take_most_frequent,
)
from auditor.faults.repeated_captions import CaptionGroup, compute_minhashes
from auditor.sweep.caption_facts import hash_caption, normalize_caption
from tests.faults.test_corpus_window import write_shard
from tests.support.planted import make_embeddings, write_embeddings, write_planted

NAMES = ("ann", "bob", "cleo", "dan", "eve", "finn", "gus", "hal", "ida", "jo")
SHARDS = ["00000", "00001", "00002"]


def make_different_captions(count: int) -> list[str]:
    """Different captions without common word pairs; their vectors are unrelated to the words."""
    return [f"w{chr(97 + i % 26)}{chr(97 + i // 26)} is x{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(count)]


def write_templates(path: Path, each: int, write: Callable[..., object] = write_embeddings) -> Path:
    texts = make_different_captions(300)
    for number in range(3 * each):
        place = number % 3 * 100 + 5 + number // 3  # the same number in every shard
        texts[place] = f"portrait of {NAMES[number % 10]} {NAMES[number // 10]} free stock photo on white background"
    write(path, *make_embeddings(300, 9), shards=3, captions=texts)
    return path


def find_groups(path: Path) -> tuple[list[CaptionGroup], dict[str, str]]:
    folder = Folder(path)
    templates = [template for shard in SHARDS for template in find_shard_templates(read_window(folder, shard))]
    return find_near_groups(folder, SHARDS, merge_templates(take_most_frequent(templates)))


def test_a_template_is_one_fault_of_all_shards(tmp_path: Path) -> None:
    found = [fault for fault in Audit(write_templates(tmp_path, 10, write_planted)).faults() if fault.kind == "caption"]
    assert [(fault.pattern, fault.rows) for fault in found] == [("boilerplate", 30)]
    assert "nearly the same caption on different media" in found[0].sentence and "free stock photo" in found[0].sentence


def test_few_uses_are_no_pattern(tmp_path: Path) -> None:
    assert find_groups(write_templates(tmp_path, 1)) == ([], {})


def test_near_captions_of_like_media_are_plain_descriptions(tmp_path: Path) -> None:
    visual, text = make_embeddings(300, 10)
    texts = make_different_captions(300)
    for place in range(0, 300, 15):
        texts[place], visual[place] = f"a {NAMES[place % 10]} dog runs on the green grass of the park", visual[0]
    write_planted(tmp_path, visual, text, shards=3, captions=texts)
    groups, places = find_groups(tmp_path)
    assert [group.rows for group in groups] == [20] and set(groups[0].members) == set(places)
    media = read_media_vectors(Folder(tmp_path), places)
    assert set(media) == set(places)
    assert all(np.allclose(vector, visual[0], atol=1e-3) for vector in media.values())
    assert not [fault for fault in Audit(tmp_path).faults() if fault.pattern == "boilerplate"]


def test_captions_with_nearly_the_same_vector_are_near(tmp_path: Path) -> None:
    visual, text = make_embeddings(300, 11)
    text[20:30] = text[20]
    texts = make_different_captions(300)
    texts[20:30] = [" ".join(words) for words in list(permutations(("photo", "portrait", "free", "stock")))[:20:2]]
    write_embeddings(tmp_path, visual, text, shards=3, captions=texts)
    (template,) = find_shard_templates(read_window(Folder(tmp_path), "00000"))
    assert template.rows == 10
    (group,), _ = find_groups(tmp_path)
    assert group.rows == 10


def test_an_encoder_that_does_not_know_a_script_makes_no_captions_near(tmp_path: Path) -> None:
    """It gives all of them nearly the same vector."""
    words = ["собака", "яблоко", "автомобиль", "женщина", "улица", "вертолёт", "кошка", "зонт", "мост", "фонарь"]
    words += ["σκύλος", "μήλο", "αυτοκίνητο", "γυναίκα", "δρόμος", "犬", "りんご", "電車", "海岸", "夕焼け"]
    texts = make_different_captions(300)
    texts[20:40] = texts[120:140] = texts[220:240] = words
    visual, text = make_embeddings(300, 11)
    text[20:40] = text[120:140] = text[220:240] = text[20]
    write_embeddings(tmp_path, visual, text, shards=3, captions=texts)
    assert find_groups(tmp_path) == ([], {})
    known = CaptionTemplate("portrait of ann", 10, text[20])
    assert [use.rows for use in count_template_uses(Folder(tmp_path), [known], (), "00000")] == [0]


def list_character_pairs(caption: str) -> set[str]:
    return {a + b for a, b in pairwise(normalize_caption(caption) + "\n")} if normalize_caption(caption) else set()


def test_characters_are_those_of_every_pair_of_captions() -> None:
    texts = [
        "Ann Lee, free stock photo",
        "free stock image of Ann Lee",
        "日",
        "日本の海岸",
        "",
        "12 dogs",
        "1 dog",
        "ÉTÉ",
        "été",
    ]
    others = ["ann lee", "", "海岸", "été"]
    pairs, other_pairs = ([list_character_pairs(text) for text in some] for some in (texts, others))
    expected = [[len(one & other) / max(1, len(one | other)) for other in other_pairs] for one in pairs]
    assert np.allclose(compare_characters(texts, others), expected)
    assert compare_characters([], others).shape == (0, 4) and compare_characters(["", ""], [""]).tolist() == [[0], [0]]


def test_equal_captions_are_read_once(tmp_path: Path) -> None:
    texts = ["one thing"] * 40 + make_different_captions(60)
    write_embeddings(tmp_path, *make_embeddings(100, 12), captions=texts, broken=[3])
    found = count_distinct_captions(read_window(Folder(tmp_path), "00000").captions)
    assert len(found) == 61 and found.rows.sum() == 99 and found.rows.max() == 39


def test_distinct_captions_are_those_that_numpy_finds() -> None:
    given = [*"bab", "ba", "", "straße", "Ω", "ba", "\U0001f600", "\uffee", "b"]
    column = pa.chunked_array([given[:4], given[4:]], pa.string())
    texts, first, counts = np.unique(np.array(given, object), return_index=True, return_counts=True)
    found = count_distinct_captions(column)
    assert found.texts.to_pylist() == texts.tolist()
    assert found.first.tolist() == first.tolist() and found.rows.tolist() == counts.tolist()
    assert len(count_distinct_captions(pa.chunked_array([], pa.string()))) == 0


def test_uses_are_those_of_every_caption_compared_with_every_template(tmp_path: Path) -> None:
    """Compared row by row; captions without a medium do not count."""
    folder = write_shard(tmp_path, samples=90)
    texts = [f"{NAMES[i % 10]} and {NAMES[i % 7]} on the {NAMES[i % 3]} sofa" for i in range(400)]
    table = folder.read_table("embeddings/a.parquet")
    named = table.set_column(2, "caption", pa.array(texts[: table.num_rows]))
    named = named.append_column("caption_hash", pa.array(map(hash_caption, texts[: table.num_rows])))
    pq.write_table(named, tmp_path / "embeddings" / "a.parquet", row_group_size=50)
    passage = read_window(Folder(tmp_path), "a")
    assert not passage.samples.present[passage.sample].all()
    chosen = find_shard_templates(passage)
    assert len(chosen) > 2
    rows = [i for i in range(len(passage.sample)) if passage.samples.present[passage.sample[i]]]
    captions = sorted({passage.captions[i].as_py() for i in rows})
    for template, found in zip(chosen, count_template_uses(folder, chosen, {"a"}, "a"), strict=True):
        alike = estimate_jaccard(compute_minhashes(captions), compute_minhashes([template.caption]))[:, 0]
        first = [next(i for i in rows if passage.captions[i].as_py() == caption) for caption in captions]
        shared = compare_characters(captions, [template.caption])[:, 0] >= SHARED
        same = (passage.text[first] @ template.text >= SIMILAR_TEXT) & shared
        used = {caption for caption, near in zip(captions, same | (alike >= COUNTED), strict=True) if near}
        core = np.flatnonzero(same | (alike >= CORE))
        assert found.rows == sum(passage.captions[i].as_py() in used for i in rows)
        assert found.hashes == {hash_caption(caption) for caption in used}
        assert found.spellings == len(core) and list(found.captions) == [captions[i] for i in core[:3]]
        assert list(found.members) == [passage.uid(first[i]) for i in core[:MEMBERS]]
        for uid, vector in read_media_vectors(folder, dict.fromkeys(found.members, "a")).items():
            row = passage.uids.to_pylist().index(uid)
            assert np.array_equal(vector, passage.samples.visual[passage.sample[row]])


def test_vectors_are_compared_in_any_order_and_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_captions, "AT_ONCE", 7)
    given, _ = make_embeddings(50)
    present = np.arange(50) % 9 > 0
    whole = build_nullable_vectors(given[present], present)
    column = pa.chunked_array([whole.slice(0, 20), whole.slice(20)])
    rows = np.random.default_rng(0).permutation(np.flatnonzero(present))[:30]
    same = compare_vectors(column, rows, given[[13, 40]])
    assert np.array_equal(same, rows[:, None] == [13, 40])


def test_templates_are_kept_as_they_come() -> None:
    """Selecting as templates arrive gives the same templates as selecting all at once; those near each other merge."""
    generator = np.random.default_rng(0)
    text = np.eye(4, dtype=np.float32)
    shards = [
        [CaptionTemplate(f"w{i % 40} x{i} y{i % 11}", int(generator.integers(1, 50)), text[i % 4]) for i in range(300)]
        for _ in range(12)
    ]
    every = [template for some in shards for template in some]
    kept: list[CaptionTemplate] = []
    for templates in shards:
        kept = take_most_frequent([*kept, *templates])
    expected = take_most_frequent(every)
    assert len(kept) == 10 * MOST_TEMPLATES < len(every)
    assert [(t.caption, t.rows) for t in kept] == [(t.caption, t.rows) for t in expected]
    (merged,) = merge_templates(kept)  # they differ only in digits
    assert merged.caption == kept[0].caption and merged.rows == sum(t.rows for t in kept)


def test_agreement_is_the_share_of_equal_hashes() -> None:
    found = compute_minhashes(["a b c d", "a b c e", "x y z"])
    expected = [[(one == other).mean() for other in found] for one in found]
    assert np.allclose(estimate_jaccard(found, found), expected)


def test_one_long_caption_does_not_lengthen_the_others(tmp_path: Path) -> None:
    texts = make_different_captions(300)
    texts[7] = "word " * 100_000
    write_embeddings(tmp_path, *make_embeddings(300, 9), shards=1, captions=texts)
    tracemalloc.start()
    found = count_distinct_captions(read_window(Folder(tmp_path), "00000").captions).texts.to_pylist()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert texts[7].strip() in {text.strip() for text in found} and len(found) == 300
    assert peak < 50e6
