"""A sample becomes one row per caption; uids are stable and distinct, and the corpus's own if it has one."""

import numpy as np
import pytest

from auditor.corpus.sample import Media, Problem, Sample
from auditor.sweep.sample_rows import build_fact_table, compute_row_uid, count_rows
from auditor.sweep.sweep_events import DecodedSample
from auditor.workers.decoder_process import Decoded

MEDIA = Media("/corpus/0.tar", 512, 100, "image")
NO_PIXELS = np.empty((0, 4, 4, 3), np.uint8)
PHOTO = Decoded(NO_PIXELS, 640, 480)


def decoded(**changes: object) -> DecodedSample:
    fields = {"shard": "0", "key": "a", "captions": ("one", "two"), "media": MEDIA, **changes}
    return DecodedSample(Sample(**fields), "d" * 32, PHOTO, 1)  # type: ignore[arg-type]


def test_one_row_per_caption_and_at_least_one() -> None:
    none = DecodedSample(Sample("0", "b", (), None), None, Problem("missing_caption", "no caption"))
    table = build_fact_table([decoded(), none])
    assert table.column("key").to_pylist() == ["a", "a", "b"]
    assert table.column("caption_index").to_pylist() == [0, 1, 0]
    assert table.column("caption").to_pylist() == ["one", "two", None]
    assert table.column("status").to_pylist() == ["ok", "ok", "missing_caption"]
    assert table.column("error_message").to_pylist() == [None, None, "no caption"]
    assert table.column("media_offset").to_pylist() == [512, 512, None]
    assert count_rows([decoded(), none]) == [2, 1]


def test_a_video_is_what_decodes_as_one() -> None:
    clip = Decoded(NO_PIXELS, 64, 48, 2.5, [0.5, 1.5])
    video = DecodedSample(Sample("0", "c", ("x",), MEDIA), "e" * 32, clip, 2)
    row = build_fact_table([video]).to_pylist()[0]
    assert (row["kind"], row["duration"], row["frames"]) == ("video", 2.5, 2)


@pytest.mark.parametrize(
    "other",
    [decoded(key="b"), decoded(shard="1"), decoded(occurrence=1), decoded(uid="0" * 32, occurrence=1)],
    ids=["key", "shard", "occurrence", "repeated uid"],
)
def test_uids_tell_rows_apart(other: DecodedSample) -> None:
    assert compute_row_uid(decoded(), 0, "one") != compute_row_uid(other, 0, "one")
    assert compute_row_uid(decoded(), 0, "one") != compute_row_uid(decoded(), 1, "one")
    assert compute_row_uid(decoded(), 0, "one") != compute_row_uid(decoded(), 0, "two")


def test_a_uid_is_32_hex_digits_and_always_the_same() -> None:
    first = compute_row_uid(decoded(), 0, "one")
    assert first == compute_row_uid(decoded(), 0, "one")
    assert len(bytes.fromhex(first)) == 16


def test_every_caption_may_have_the_corpus_own_uid() -> None:
    own = decoded(uid="0" * 32, uids=("A" * 32, None))
    assert compute_row_uid(own, 0, "one") == "a" * 32 and compute_row_uid(own, 1, "two") == compute_row_uid(
        decoded(uid="0" * 32), 1, "two"
    )


def test_the_corpus_own_uid_is_kept_for_its_first_caption() -> None:
    own = "00ABcdef" * 4
    assert compute_row_uid(decoded(uid=own), 0, "one") == own.lower()
    assert compute_row_uid(decoded(uid=own), 1, "two") != own.lower()
