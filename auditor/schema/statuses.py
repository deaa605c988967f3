"""The values of `status` and `review`, and the flags that the view derives from a column and a threshold."""

from dataclasses import dataclass
from typing import Literal, get_args

Status = Literal[
    "ok", "corrupt", "missing_media", "missing_caption", "timeout", "duplicate_key", "too_large", "bad_span",
    "bad_vector", "not_downloaded", "outside",
]  # fmt: skip
Defect = Literal[  # of generated captions: values of `looks_like` that auditor/sweep/caption_defects.py finds
    "refusal", "prompt leak", "placeholder", "code", "numbers", "first person", "picture talk", "loop", "unfinished",
]  # fmt: skip
DEFECTS: tuple[Defect, ...] = get_args(Defect)
# Values of `looks_like` of texts that do not describe a medium at all.
NO_CAPTIONS = ("file name", "url", "html", "mojibake", "stock title", *DEFECTS[:5])
Mark = Literal["good", "bad", "unsure"]


@dataclass(frozen=True, slots=True)
class ValueText:
    """Display text of one value of `status` or `review`."""

    label: str
    meaning: str
    color: str = "gray"


STATUSES: dict[Status, ValueText] = {
    "ok": ValueText("usable", "decoded, encoded and scored"),
    "corrupt": ValueText("cannot be decoded", "no decoder can read the medium; error_message gives the reason"),
    "missing_media": ValueText("no medium", "the sample has a caption but no image or video"),
    "missing_caption": ValueText("no caption", "the sample has a medium but no caption, or an empty one"),
    "timeout": ValueText("took too long", "decoding was stopped at the time limit"),
    "duplicate_key": ValueText("key used twice", "an earlier sample of the same shard has the same key"),
    "too_large": ValueText("too large", "more pixels or bytes than the limits allow"),
    "bad_span": ValueText("bad span", "the caption's span is empty, reversed, not a time, or starts outside the video"),
    "bad_vector": ValueText("no usable embedding",
        "the stored embedding is missing, not finite, zero or of a different width"),
    "not_downloaded": ValueText("not downloaded",
        "img2dataset could not download or resize the image; error_message gives the reason"),
    "outside": ValueText("outside the corpus",
        "a link or a path leads out of the corpus; --follow-links or --media-root allows it"),
}  # fmt: skip
MARKS: dict[Mark, ValueText] = {
    "good": ValueText("good", "the caption describes the medium", "green"),
    "bad": ValueText("bad", "the caption does not describe the medium", "red"),
    "unsure": ValueText("unsure", "the reviewer cannot decide, or reviewers disagree", "gray"),
}


@dataclass(frozen=True, slots=True)
class Flag:
    """A suspicion that the view derives: `measure` is at or above the flag's threshold in the manifest."""

    name: str
    label: str
    meaning: str
    measure: str
    color: str


FLAG_THRESHOLD = 0.5  # of all flags, unless the manifest or the user has another


_FLAGS = (
    Flag("mismatch", "mismatch", "the caption probably does not describe the medium",
        "p_mismatch", "red"),
    Flag("ambiguous_visual", "ambiguous medium",
        "the medium shows nothing in particular, or several scenes", "ambiguity_visual", "orange"),
    Flag("ambiguous_text", "ambiguous caption",
        "the caption describes nothing in particular", "ambiguity_text", "violet"),
)  # fmt: skip
FLAGS: dict[str, Flag] = {flag.name: flag for flag in _FLAGS}
