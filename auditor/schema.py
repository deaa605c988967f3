"""Every column, flag, status and mark of an audit, declared once: type, label, meaning, direction, unit, use, storage.

Whatever lists columns derives its list from here: Parquet files, the view, rules and options of `auditor filter`,
summaries, comparisons, the report, the dashboard and docs/columns.md (written by `python docs/generate.py`).
A new column is one entry here and the code that computes it. Plain Python, so that --help can list columns at once.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

Type = Literal["string", "bool", "int16", "int32", "int64", "float32", "float64"]
Group = Literal["fact", "score", "flag", "review"]
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
]
Mark = Literal["good", "bad", "unsure"]
# headline: measured for every usable pair and shown wherever there are numbers; measurement: for every usable pair too,
# with percentiles, but shown only where it is asked for; detail: shown on the page of a row that has it.
Use = Literal["headline", "measurement", "detail", "other"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `samples`."""

    name: str
    type: Type
    label: str  # for people
    meaning: str  # one line for people
    group: Group = "fact"
    suspicious: Literal["high", "low"] | None = None  # which end of it; None: neither
    unit: str = ""
    use: Use = "other"
    place: int = 99  # among the headlines, the most telling first
    in_memory: bool = False  # the dashboard keeps it in memory
    unique: bool = False  # hardly a value repeats: stored without a dictionary
    hexadecimal: bool = False  # of high entropy, in hex: stored with zstd
    definition: str = ""  # how it is computed, for docs/columns.md
    short: str = ""  # label where there is little room
    sentence: str = ""  # what one value says; may hold {value}, {percent} and {kind}
    rule: str = ""  # help of the option of `auditor filter` that bounds it; empty: there is none
    logarithmic: bool = False  # axis of its histograms
    ties_by: str = ""  # the column that tells rows apart whose values are equal, as 0 and 1 often are

    @property
    def rule_name(self) -> str:
        """max_p_mismatch, min_similarity: the rule keeps the end that is not suspicious."""
        return f"{'max' if self.suspicious == 'high' else 'min'}_{self.name}"


@dataclass(frozen=True, slots=True)
class Flag:
    """A suspicion that the view derives: `measure` is at or above the flag's threshold in the manifest.

    A threshold named after `paper_measure` makes the flag go by that column instead: the definition of the PAU paper.
    Without either, a threshold named after `ranked_by` does; this is how an audit sets its own flags.
    """

    name: str
    label: str
    plural: str  # "12% ambiguous captions"
    meaning: str
    measure: str
    colour: str
    paper_measure: str | None = None
    ranked_by: str | None = None


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
}
MARKS: dict[Mark, Word] = {
    "good": Word("good", "the caption describes the medium", "green"),
    "bad": Word("bad", "the caption does not describe the medium", "red"),
    "unsure": Word("unsure", "the reviewer cannot say, or reviewers disagree", "gray"),
}
FLAGS: dict[str, Flag] = {
    flag.name: flag
    for flag in (
        Flag(
            "mismatch",
            "mismatch",
            "flagged as mismatched",
            "the caption probably does not describe the medium",
            "p_mismatch",
            "red",
        ),
        Flag(
            "ambiguous_visual",
            "ambiguous medium",
            "ambiguous media",
            "many captions of the corpus fit the medium",
            "matches_visual",
            "orange",
            "uncertainty_visual",
            "ambiguity_visual",
        ),
        Flag(
            "ambiguous_text",
            "ambiguous caption",
            "ambiguous captions",
            "the caption fits many media of the corpus, or says very little",
            "matches_text",
            "violet",
            "uncertainty_text",
            "ambiguity_text",
        ),
    )
}

# What the sweep finds out; the same in embeddings/ and samples/.
_FACTS = (
    Column("uid", "string", "Uid", "identity of the row, 32 hex digits", unique=True, hexadecimal=True),
    Column("key", "string", "Key", "name of the sample in its shard", unique=True),
    Column(
        "caption_index",
        "int32",
        "Caption number",
        "which caption of the medium, from 0",
        in_memory=True,
        definition="a medium with five captions gives five rows and is encoded once",
    ),
    Column("shard", "string", "Shard", "name of the shard"),
    Column(
        "kind",
        "string",
        "Kind",
        "image or video; empty where there is no medium",
        in_memory=True,
        definition="what it decodes as, whatever its name says",
    ),
    Column("caption", "string", "Caption", "the text", unique=True, in_memory=True),
    Column(
        "caption_hash",
        "int64",
        "Caption hash",
        "equal for captions that differ in case, punctuation and digits at most",
        unique=True,
        definition="64 bits of the normalised caption",
    ),
    Column("start", "float64", "Start", "where the span of a timed caption begins; empty: whole clip", unit="seconds"),
    Column("end", "float64", "End", "where the span of a timed caption ends", unit="seconds"),
    Column(
        "words",
        "int32",
        "Words",
        "of the caption",
        suspicious="low",
        unit="words",
        in_memory=True,
        rule="Keep captions of at least this many words.",
    ),
    Column(
        "tokens",
        "int32",
        "Tokens",
        "of the caption that the text tower saw, with its start and end",
        unit="tokens",
        in_memory=True,
        definition="at most the tower's context",
    ),
    Column(
        "truncated_caption",
        "bool",
        "Caption cut off",
        "whether the caption is longer than the text tower's context: its end was never seen",
        in_memory=True,
    ),
    Column(
        "repeated_words",
        "float32",
        "Repeated words",
        "share of the caption's pairs of neighbouring words that occurred before in it",
        suspicious="high",
        unit="share",
        in_memory=True,
        rule="Keep captions that repeat at most this share of their word pairs.",
    ),
    Column(
        "non_letters",
        "float32",
        "Non-letters",
        "share of the caption's characters, blanks aside, that are not letters",
        suspicious="high",
        unit="share",
        in_memory=True,
        rule="Keep captions with at most this share of characters that are not letters.",
    ),
    Column(
        "looks_like",
        "string",
        "Looks like",
        "file name, url, html or mojibake, where the caption looks like one; else empty",
        in_memory=True,
    ),
    Column(
        "language",
        "string",
        "Language",
        "of the caption, as ISO 639-1 code; empty where it is too short to tell",
        in_memory=True,
        definition="py3langid at a probability of 0.9 or more",
    ),
    Column("width", "int32", "Width", "of the decoded medium", unit="pixels", in_memory=True),
    Column("height", "int32", "Height", "of the decoded medium", unit="pixels", in_memory=True),
    Column("duration", "float32", "Duration", "of a video; empty for images", unit="seconds", in_memory=True),
    Column("frames", "int32", "Frames", "frames that were encoded, 1 for an image", unit="frames", in_memory=True),
    Column("decoder", "string", "Decoder", "video: the library that gave the frames, pyav or decord"),
    Column("frame_rate", "float32", "Frame rate", "of a video", unit="frames a second"),
    Column("constant_rate", "bool", "Constant rate", "video: whether every frame is shown for as long"),
    Column("audio", "bool", "Audio", "video: whether it has sound"),
    Column("still_picture", "bool", "Still picture", "video: all frames are the same, a photo sold as a video"),
    Column("black_share", "float32", "Black", "video: share of the frames that are black", unit="share"),
    Column("letterbox", "float32", "Bars", "video: share of the picture that is black bars", unit="share"),
    Column("cuts", "int32", "Cuts", "video: changes of scene in it; only with --motion", suspicious="high"),
    Column("cut_times", "string", "Times of the cuts", "video: seconds, with blanks between them", unique=True),
    Column("motion", "float32", "Motion", "video: median change of the picture in a second; only with --motion"),
    Column("motion_peak", "float32", "Peak of motion", "video: the same where it changes most (99th percentile)"),
    Column("frozen_share", "float32", "Frozen", "video: share of the time in which nothing changes", unit="share"),
    Column("slideshow_share", "float32", "Slide show", "video: share of the time in still pictures", unit="share"),
    Column(
        "aspect",
        "float32",
        "Aspect",
        "width by height of the decoded medium",
        in_memory=True,
    ),
    Column(
        "sharpness",
        "float32",
        "Sharpness",
        "how steep the sharpest edges are: 0 a smear, 1 a hard edge; of videos the median frame",
        suspicious="low",
        in_memory=True,
        definition="99.5% quantile of the steps of luma from pixel to pixel at the encoder's size, over its range",
        rule="Keep media at least this sharp.",
    ),
    Column("brightness", "float32", "Brightness", "mean luma, 0 black to 1 white", in_memory=True),
    Column(
        "dark_share",
        "float32",
        "Dark share",
        "share of the pixels that are nearly black",
        suspicious="high",
        unit="share",
        in_memory=True,
        rule="Keep media with at most this share of nearly black pixels.",
    ),
    Column(
        "bright_share",
        "float32",
        "Bright share",
        "share of the pixels that are nearly white",
        suspicious="high",
        unit="share",
        in_memory=True,
        rule="Keep media with at most this share of nearly white pixels.",
    ),
    Column(
        "contrast",
        "float32",
        "Contrast",
        "standard deviation of luma",
        suspicious="low",
        in_memory=True,
        rule="Keep media with at least this contrast.",
    ),
    Column(
        "entropy",
        "float32",
        "Entropy",
        "of the histogram of luma: 0 one grey, 8 all alike",
        suspicious="low",
        unit="bits",
        in_memory=True,
        rule="Keep media with at least this entropy.",
    ),
    Column(
        "colourfulness",
        "float32",
        "Colourfulness",
        "0 grey, above 0.3 vivid",
        in_memory=True,
        definition="Hasler and Suesstrunk's measure over 255",
    ),
    Column(
        "border_share",
        "float32",
        "Border share",
        "share of the picture that uniform rows and columns at its edges take",
        suspicious="high",
        unit="share",
        in_memory=True,
        rule="Keep media with at most this share of uniform border.",
    ),
    Column("media_path", "string", "File", "file or URL that holds the bytes of the medium"),
    Column("media_offset", "int64", "Offset", "where in that file they begin", unit="bytes", unique=True),
    Column("media_size", "int64", "Size", "how many there are", unit="bytes", unique=True),
    Column(
        "media_digest",
        "string",
        "Digest",
        "equal for media with the same bytes",
        unique=True,
        hexadecimal=True,
        definition="BLAKE2b-128 of the bytes, hex",
    ),
    Column(
        "status",
        "string",
        "Status",
        "whether the row can be used, and if not, why",
        in_memory=True,
        definition=", ".join(STATUSES),
    ),
    Column(
        "carried",
        "string",
        "Carried columns",
        "columns of the input that were carried into the audit, as JSON",
        unique=True,
        definition="named by `--carry`; each is a column of `samples` too, `input_NAME` where the name is taken",
    ),
    Column("error_message", "string", "What was wrong", "why the row cannot be used; empty where it can"),
)

# What scoring adds; empty where status is not ok.
_score = partial(Column, group="score")
_SCORES = (
    _score(
        "similarity",
        "float32",
        "Similarity",
        "how well caption and medium agree",
        suspicious="low",
        unit="cosine",
        use="headline",
        place=2,
        in_memory=True,
        definition="for a video the mean of the whole clip's cosine and the best frame's",
        short="similarity",
        sentence="how well caption and medium agree",
        rule="Keep pairs with at least this similarity.",
    ),
    _score(
        "similarity_normalised",
        "float32",
        "Similarity, normalised",
        "the similarity against what both sides reach with others",
        suspicious="low",
        use="measurement",
        in_memory=True,
        definition="less half the log-mean-exp of both sides (hubness)",
    ),
    _score(
        "uncertainty_visual",
        "float32",
        "Uncertainty of the medium",
        "PAU's aleatoric uncertainty; high where the medium shows much at once",
        suspicious="high",
        use="headline",
        place=3,
        in_memory=True,
        definition="u = 1 - K/S",
        short="u medium",
        sentence="PAU's ambiguity of the {kind}: how much it shows at once",
        rule="Keep media with at most this uncertainty.",
    ),
    _score(
        "uncertainty_text",
        "float32",
        "Uncertainty of the caption",
        "PAU's aleatoric uncertainty; high where the caption could describe much",
        suspicious="high",
        use="headline",
        place=4,
        in_memory=True,
        definition="u = 1 - K/S",
        short="u caption",
        sentence="PAU's ambiguity of the caption: how much it could describe",
        rule="Keep captions with at most this uncertainty.",
    ),
    _score(
        "mean_similarity_visual",
        "float32",
        "Mean similarity of the medium (h)",
        "mean similarity of the medium to the captions of the corpus",
        suspicious="high",
        unit="cosine",
        use="measurement",
        in_memory=True,
        definition="h, which u of the paper is trained to follow",
    ),
    _score(
        "mean_similarity_text",
        "float32",
        "Mean similarity of the caption (h)",
        "mean similarity of the caption to the media of the corpus",
        suspicious="high",
        unit="cosine",
        use="measurement",
        in_memory=True,
        definition="h, which u of the paper is trained to follow",
    ),
    _score(
        "matches_visual",
        "float32",
        "Captions that fit the medium",
        "how many captions of the corpus fit the medium as well",
        suspicious="high",
        unit="captions",
        use="headline",
        place=5,
        in_memory=True,
        definition="effective number: perplexity of the retrieval distribution",
        short="captions that fit",
        sentence="about {value} captions of this corpus fit this {kind} as well",
        rule="Keep media that at most this many captions fit.",
        logarithmic=True,
    ),
    _score(
        "matches_text",
        "float32",
        "Media that fit the caption",
        "how many media of the corpus fit the caption as well",
        suspicious="high",
        unit="media",
        use="headline",
        place=6,
        in_memory=True,
        definition="effective number: perplexity of the retrieval distribution",
        short="media that fit",
        sentence="about {value} {kind}s of this corpus fit this caption as well",
        rule="Keep captions that fit at most this many media.",
        logarithmic=True,
    ),
    _score(
        "ambiguity_visual",
        "float32",
        "Ambiguity of the medium",
        "how unclear it is which caption the medium belongs to",
        suspicious="high",
        unit="deviations",
        use="measurement",
        in_memory=True,
        definition="entropy of the captions that fit, hubs discounted, in deviations from the corpus's mean",
    ),
    _score(
        "ambiguity_text",
        "float32",
        "Ambiguity of the caption",
        "how unclear it is which medium the caption belongs to, and how little its words say",
        suspicious="high",
        unit="deviations",
        use="measurement",
        in_memory=True,
        definition="the same for the media that fit, plus twice what caption_bits falls short of the usual",
    ),
    _score(
        "caption_bits",
        "float32",
        "What the words say",
        "how much the words of the caption narrow down what it may describe",
        suspicious="low",
        unit="bits",
        use="detail",
        definition="sum over its words of log2(captions / captions with the word)",
    ),
    _score(
        "mismatch_score",
        "float32",
        "Mismatch score",
        "the statistic that p_mismatch is computed from",
        suspicious="low",
        in_memory=True,
        definition="sum of the evidence: similarity, rivals, neighbours, siblings, words (docs/method.md)",
    ),
    _score(
        "rival_margin",
        "float32",
        "Margin over rivals",
        "low where a better partner exists in the corpus, whether or not this one is right",
        suspicious="low",
        use="measurement",
        in_memory=True,
        definition="the pair's similarity less that of the rivals of both its sides",
    ),
    _score(
        "neighbour_agreement",
        "float32",
        "Captions of similar media",
        "how far the captions of the most similar media agree with this one; 0: as with any caption",
        suspicious="low",
        unit="deviations",
        definition="weighted mean similarity to them, in deviations above random re-pairings",
    ),
    _score(
        "sibling_agreement",
        "float32",
        "Other captions of the medium",
        "how far the medium's other captions agree with this one; empty where it has none",
        suspicious="low",
        unit="deviations",
        definition="similarity to them, weighed by how well they fit themselves, above random re-pairings",
    ),
    _score(
        "word_support",
        "float32",
        "Support of the weakest word",
        "how much the medium speaks for the caption's weakest word; empty where there are no words",
        suspicious="low",
        unit="deviations",
        definition="cosine of the word alone with the medium, in deviations over media",
    ),
    _score(
        "weakest_word",
        "string",
        "Weakest word",
        "the word of the caption that the medium speaks for least",
        use="detail",
    ),
    _score(
        "p_mismatch",
        "float32",
        "Probability of a mismatch",
        "that the caption does not describe the medium",
        suspicious="high",
        unit="probability",
        use="headline",
        place=1,
        in_memory=True,
        definition="local false discovery rate against random re-pairings of the corpus",
        short="mismatch",
        sentence="of pairs with such a score, {percent} do not belong together",
        rule="Keep pairs that are mismatched with at most this probability.",
        ties_by="mismatch_score",
    ),
    _score(
        "p_mismatch_without_labels",
        "float32",
        "Probability of a mismatch, without labels",
        "what p_mismatch was before `auditor certify --recalibrate` corrected it; empty where it has not",
        suspicious="high",
        unit="probability",
    ),
    _score("best_frame", "int32", "Best frame", "video: which encoded frame fits the caption best, from 0"),
    _score(
        "best_frame_time",
        "float32",
        "Time of the best frame",
        "video: when the frame that fits best is shown",
        unit="seconds",
        use="detail",
    ),
    _score(
        "frame_spread",
        "float32",
        "Spread of the frames",
        "video: how unevenly its frames fit the caption",
        suspicious="high",
        definition="standard deviation of the frames' similarities",
    ),
    _score(
        "frame_match_share",
        "float32",
        "Frames that fit",
        "video: share of the frames that fit the caption",
        suspicious="low",
        unit="share",
        use="detail",
    ),
    _score(
        "time_shift",
        "float32",
        "Shift in time",
        "video with timed captions: seconds to add to their spans so that they fit best",
        unit="seconds",
        use="detail",
        definition="within 30 s, from the similarities of all its captions and frames",
    ),
    _score(
        "p_time_shift",
        "float32",
        "Chance of the shift",
        "how often such a gain comes by chance; small: the captions are out of step",
        suspicious="low",
        unit="probability",
        use="detail",
        definition="against captions permuted among the spans of the video",
    ),
    _score("best_start", "float32", "True from", "timed caption: where it begins to be true", unit="seconds"),
    _score("best_end", "float32", "True until", "timed caption: where it ceases to be true", unit="seconds"),
    _score(
        "duplicate_of",
        "string",
        "Duplicate of",
        "uid of the one that stays of its group of duplicates; empty for that one",
        definition="the medium is a copy, exact or near, of another one; or the caption repeats one of its own medium",
        unique=True,
        hexadecimal=True,
    ),
    _score(
        "caption_count",
        "int32",
        "Times the caption occurs",
        "usable rows of the corpus with the same caption, but for case, punctuation and digits",
        suspicious="high",
        unit="rows",
        in_memory=True,
        rule="Keep captions that occur at most this often.",
        logarithmic=True,
    ),
    _score("topic", "int16", "Topic", "cluster of the medium's embedding", in_memory=True),
)


COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        *_FACTS,
        *_SCORES,
        *(
            Column(flag.name, "bool", flag.label.capitalize(), flag.meaning, "flag", suspicious="high")
            for flag in FLAGS.values()
        ),
        Column("review", "string", "Review", "what most reviewers say of the row", "review"),
    )
}


def named(*, use: Iterable[Use] = (), group: Iterable[Group] = ()) -> tuple[str, ...]:
    """Names of the columns of some uses or groups: headlines first, the others in their order on disk."""
    found = [c for c in COLUMNS.values() if c.use in tuple(use) or c.group in tuple(group)]
    return tuple(c.name for c in (sorted(found, key=lambda c: c.place) if use else found))


FACTS = named(group=["fact"])
SCORES = named(group=["score"])
STORED = (*FACTS, *SCORES)  # the columns of samples/; flags and reviews are joined by the view
HEADLINES = named(use=["headline"])
HIGH_IS_SUSPICIOUS = frozenset(name for name, column in COLUMNS.items() if column.suspicious == "high")
MEASUREMENTS = named(use=["headline", "measurement"])


def order_sql(column: str, *, suspicious_first: bool, quoted: str | None = None) -> str:
    """ORDER BY a column; rows with equal values by the one behind it, most suspicious at the same end."""
    known = COLUMNS.get(column)
    high = (known is not None and known.suspicious == "high") == suspicious_first
    order = f"{quoted or column} {'DESC' if high else 'ASC'} NULLS LAST"
    if known is None or not known.ties_by:
        return order
    return f"{order}, {order_sql(known.ties_by, suspicious_first=suspicious_first)}"


RULES: dict[str, Column] = {
    column.rule_name: column for column in sorted(COLUMNS.values(), key=lambda column: column.place) if column.rule
}
