"""A sample becomes one row per caption; uids are stable, distinct and the corpus's own where it has one."""

import pytest

from auditor.corpus.sample import Media, Problem, Sample
from auditor.sweep.sample_rows import Shape, Swept, facts, row_counts, row_uid

MEDIA = Media("/corpus/0.tar", 512, 100, "image")
SHAPE = Shape(640, 480, None, 1)


def swept(**changes: object) -> Swept:
    fields = {"shard": "0", "key": "a", "captions": ("one", "two"), "media": MEDIA, **changes}
    return Swept(Sample(**fields), "d" * 32, SHAPE)  # type: ignore[arg-type]


def test_one_row_per_caption_and_at_least_one() -> None:
    none = Swept(Sample("0", "b", (), None), None, Problem("missing_caption", "no caption"))
    table = facts([swept(), none])
    assert table.column("key").to_pylist() == ["a", "a", "b"]
    assert table.column("caption_index").to_pylist() == [0, 1, 0]
    assert table.column("caption").to_pylist() == ["one", "two", None]
    assert table.column("status").to_pylist() == ["ok", "ok", "missing_caption"]
    assert table.column("error_message").to_pylist() == [None, None, "no caption"]
    assert table.column("media_offset").to_pylist() == [512, 512, None]
    assert row_counts([swept(), none]) == [2, 1]


def test_a_video_is_what_decodes_as_one() -> None:
    video = Swept(Sample("0", "c", ("x",), MEDIA), "e" * 32, Shape(64, 48, 2.5, 2, (0.5, 1.5)))
    row = facts([video]).to_pylist()[0]
    assert (row["kind"], row["duration"], row["frames"]) == ("video", 2.5, 2)


@pytest.mark.parametrize(
    "other",
    [swept(key="b"), swept(shard="1"), swept(occurrence=1), swept(uid="0" * 32, occurrence=1)],
    ids=["key", "shard", "occurrence", "repeated uid"],
)
def test_uids_tell_rows_apart(other: Swept) -> None:
    assert row_uid(swept(), 0, "one") != row_uid(other, 0, "one")
    assert row_uid(swept(), 0, "one") != row_uid(swept(), 1, "one")
    assert row_uid(swept(), 0, "one") != row_uid(swept(), 0, "two")


def test_a_uid_is_32_hex_digits_and_always_the_same() -> None:
    first = row_uid(swept(), 0, "one")
    assert first == row_uid(swept(), 0, "one")
    assert len(bytes.fromhex(first)) == 16


def test_every_caption_may_have_the_corpus_own_uid() -> None:
    own = swept(uid="0" * 32, uids=("A" * 32, None))
    assert row_uid(own, 0, "one") == "a" * 32 and row_uid(own, 1, "two") == row_uid(swept(uid="0" * 32), 1, "two")


def test_the_corpus_own_uid_is_kept_for_its_first_caption() -> None:
    own = "00ABcdef" * 4
    assert row_uid(swept(uid=own), 0, "one") == own.lower()
    assert row_uid(swept(uid=own), 1, "two") != own.lower()
