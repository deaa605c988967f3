"""The values of `status` and `review`, in words."""

from dataclasses import dataclass
from typing import Literal

Status = Literal[
    "ok",
    "corrupt",
    "missing_media",
    "missing_caption",
    "timeout",
    "duplicate_key",
    "too_large",
    "bad_span",
    "bad_vector",
    "not_downloaded",
]
Mark = Literal["good", "bad", "unsure"]


@dataclass(frozen=True, slots=True)
class Word:
    """What one value of `status` or `review` says."""

    label: str
    meaning: str
    colour: str = "gray"


STATUSES: dict[Status, Word] = {
    "ok": Word("usable", "decoded, encoded and scored"),
    "corrupt": Word("cannot be decoded", "no decoder can read the medium; error_message says why"),
    "missing_media": Word("no medium", "there is a caption, but no image or video"),
    "missing_caption": Word("no caption", "there is a medium, but no caption, or an empty one"),
    "timeout": Word("took too long", "decoding was stopped at its time limit"),
    "duplicate_key": Word("key used twice", "the key was seen before in the same shard"),
    "too_large": Word("too large", "more pixels or bytes than the limits allow"),
    "bad_span": Word("bad span", "the caption's span is empty, reversed, no time at all or outside the video"),
    "bad_vector": Word("no usable embedding", "a stored embedding is missing, not finite, zero or of another width"),
    "not_downloaded": Word("not downloaded", "img2dataset could not download or resize it; error_message says why"),
}
MARKS: dict[Mark, Word] = {
    "good": Word("good", "the caption describes the medium", "green"),
    "bad": Word("bad", "the caption does not describe the medium", "red"),
    "unsure": Word("unsure", "the reviewer cannot say, or reviewers disagree", "gray"),
}
