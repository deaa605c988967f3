"""What can be wrong with the rows of an audit, declared once: the condition, what it means, and what to do about it.

A row counts under the first rule that it meets in `list_rules`, so a URL is a bad caption and not one more mismatch. No
photo or caption of Flickr8k (1,100 and 5,500 tried) reaches a limit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from auditor.audit_folder.fault_records import Fault, read_faults
from auditor.query.database import AuditDatabase
from auditor.query.sandbox import QueryError, quote_literal
from auditor.schema import DEFECTS, FLAGS, HIGH_IS_SUSPICIOUS, STATUSES
from auditor.score.statistics.caption_timing import SIGNIFICANT_P
from auditor.score.statistics.score_reasons import NO_ESTIMATE

LEAVE_OUT = "auditor filter {audit} --where {sound_rows} --out kept.parquet"
RECOMMENDED = "auditor filter {audit} --recommended --out kept.parquet"
REPAIR = "auditor repair {audit} --out repairs/"
LOOK = "auditor query {audit} {query}"
TRY_MODEL = "auditor encoders {corpus} --try ViT-B-32@laion2b_s34b_b79k"
MAIN_LANGUAGE = 0.8  # share of the captions; a corpus without such a language is mixed on purpose
LONGEST_CONDITION = 20_000  # characters: conditions are part of URLs


def start_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


@dataclass(frozen=True, slots=True)
class FindingRule:
    """A defect of single rows: those that meet `where` or reach one of the limits at its column's suspicious end."""

    name: str
    title: str  # after a number: "12 captions that ..."
    meaning: str
    harm: float  # of one such row, 0 to 1: findings are sorted by harm times rows
    where: str = ""
    limits: Mapping[str, float] = field(default_factory=dict)
    advice: str = LEAVE_OUT
    sort: str = ""  # column whose suspicious end gives the clearest examples; empty: the first with a limit
    usable: bool = True  # whether only usable rows count
    apart: bool = False  # no defect of the rows: they also count under other rules

    @property
    def defect(self) -> str:
        """The SQL condition of the defect, in parentheses if it has several terms."""
        bounds = [f"{c} {'>=' if c in HIGH_IS_SUSPICIOUS else '<'} {limit:g}" for c, limit in self.limits.items()]
        condition = " OR ".join([*([self.where] if self.where else []), *bounds])
        return condition if condition.isidentifier() else f"({condition})"

    @property
    def condition(self) -> str:
        return f"status = 'ok' AND {self.defect}" if self.usable else self.defect

    @property
    def sort_column(self) -> str:
        return self.sort or next(iter(self.limits), "")


GENERATED, NO_CAPTION, POOR_CAPTION = (
    ", ".join(f"'{name}'" for name in names) for names in (DEFECTS, DEFECTS[:5], DEFECTS[5:])
)
TEXT_RULES = (
    FindingRule("looks_like", "captions that are URLs, file names, HTML or broken characters",
        "The text was not written to describe the medium.", 0.8, f"looks_like NOT IN ('stock title', {GENERATED})"),
    FindingRule("no_caption", "refusals, prompts, placeholders, code and numbers in place of captions",
        "A model wrote the text, but not about the medium.", 0.8, f"looks_like IN ({NO_CAPTION})"),
    FindingRule("generated", "captions with other defects of generated text",
        "They repeat a sentence, end in the middle of one, or speak of the writer or of the picture's quality.", 0.4,
        f"looks_like IN ({POOR_CAPTION})"),
    FindingRule("preamble", "captions that open with a phrase such as The image shows",
        "The opening says nothing about the medium; the rest may be good.", 0.1, "preamble IS NOT NULL", apart=True,
        advice="auditor filter {audit} --strip-preamble --out kept.parquet"),
    FindingRule("stock_title", "titles of stock agencies", "Part of the text is about the sale.",
        0.3, "looks_like = 'stock title'"),
    FindingRule("single_word", "captions of a single word", "One word hardly describes a medium.", 0.3,
        "words < 2 AND coalesce(tokens, 0) <= 8", sort="words"),  # scripts without spaces have one word of many tokens
    FindingRule("symbols", "captions that are mostly digits and symbols",
        "Less than half of the characters are letters.", 0.5, limits={"non_letters": 0.5}),
    FindingRule("repetitive", "captions that repeat themselves", "Most of their word pairs occur twice.", 0.5,
        limits={"repeated_words": 0.5}),
)  # fmt: skip
MEDIA_RULES = (
    FindingRule("blank", "media with almost nothing to see", "The picture has a single tone, or the video is black.",
        0.8, limits={"contrast": 0.02, "black_share": 0.9, "dark_share": 0.995, "bright_share": 0.995}),
    FindingRule("blurred", "media that are blurred", "Nothing in the picture has a sharp edge.", 0.6,
        limits={"sharpness": 0.1}),
    FindingRule("tiny", "media that are tiny or extremely narrow", "A side has fewer than 32 pixels, or is more than "
        "five times as long as the other.", 0.5, "width < 32 OR height < 32 OR aspect > 5 OR aspect < 0.2"),
    FindingRule("border", "media that are mostly border", "Uniform rows and columns cover nearly all of the picture.",
        0.4, limits={"border_share": 0.9}),
    FindingRule("out_of_sync", "captions that are out of sync with their videos",
        "They fit if their spans are shifted in time.", 0.8, f"p_time_shift <= {SIGNIFICANT_P}", advice=REPAIR,
        sort="time_shift_gain"),
)  # fmt: skip
FLAG_RULES = tuple(
    FindingRule(name, title, start_sentence(FLAGS[name].meaning), harm, name, {}, advice, FLAGS[name].measure)
    for name, title, harm, advice in (
        ("ambiguous_text", "ambiguous captions", 0.5, RECOMMENDED),
        ("ambiguous_visual", "ambiguous media", 0.4, LEAVE_OUT),
        ("mismatch", "mismatched pairs", 1.0, RECOMMENDED),
    )
)
OTHER_RULES = (
    FindingRule("weak_part", "captions with a part that does not describe the medium",
        "The rest may be right; the Sample page and explain mark the part.", 0.7, "p_part_mismatch >= 0.5",
        advice="auditor filter {audit} --drop-weak-parts 0.5 --out kept.parquet", sort="p_part_mismatch"),
    FindingRule("truncated", "captions that are longer than the text encoder reads",
        "Only the beginning of the caption was judged.", 0.1, "truncated_caption", advice=LOOK),
    FindingRule("incomplete", "media that could be read only in part", "They are usable, but something is missing.",
        0.3, "error_message IS NOT NULL", advice=LOOK),
    FindingRule("still", "videos that show a still picture", "The picture does not change.", 0.3, "still_picture",
        {"frozen_share": 0.9}),
    FindingRule("duplicates", "copies of other rows", "The medium is a copy of another, or the caption repeats one of "
        "its own medium.", 0.3, "duplicate_of IS NOT NULL",
        advice="auditor filter {audit} --no-duplicates --out kept.parquet"),
    *(FindingRule(reason, "pairs without an estimate of p_mismatch", start_sentence(text), harm,
        f"no_estimate = '{reason}'", advice=TRY_MODEL if reason == "blind_encoder" else LOOK, apart=True)
      for (reason, text), harm in zip(NO_ESTIMATE.items(), (0.9, 0.1), strict=True)),
)  # fmt: skip
STATUS_RULES = tuple(
    FindingRule(status, f"rows: {text.label}", start_sentence(text.meaning), 1.0, f"status = '{status}'",
        advice=LOOK, usable=False)
    for status, text in STATUSES.items() if status != "ok"
)  # fmt: skip
CAPTION_FAULTS = ("boilerplate", "repeated")
# Of the patterns of faults.parquet, by kind; captions by pattern.
FAULT_TITLES = {
    "shift": ("captions that belong to a medium some places away", 1.0, REPAIR),
    "block": ("captions that are mixed up", 1.0, REPAIR),
    "shard": ("rows of shards with unusually many bad rows", 1.0, LEAVE_OUT),
    "boilerplate": ("captions that are boilerplate", 0.6, LEAVE_OUT),
    "repeated": ("captions that similar media share", 0.1, LEAVE_OUT),
    "opening": ("captions that share an opening", 0.1, LOOK),
}


def list_rules(database: AuditDatabase) -> list[FindingRule]:
    """All rules that apply to an audit, in the order of precedence."""
    faults = build_fault_rules(database)
    broken, captions = ([rule for rule in faults if (rule.name in CAPTION_FAULTS) == late] for late in (False, True))
    *ambiguous, mismatch = FLAG_RULES
    one_sided = [*STATUS_RULES, *TEXT_RULES, *MEDIA_RULES, *ambiguous]
    return [*broken, *one_sided, *captions, mismatch, *OTHER_RULES, *build_language_rule(database)]


def build_language_rule(database: AuditDatabase) -> list[FindingRule]:
    """The rule for captions that are not in the language of nearly all others, if there is one."""
    counts = database.rows(
        f"SELECT language, count(*) AS n FROM {database.table('language')} WHERE language IS NOT NULL "
        "GROUP BY language ORDER BY n DESC, language"
    )
    if not counts or counts[0]["n"] < MAIN_LANGUAGE * sum(row["n"] for row in counts):
        return []
    main = counts[0]["language"]
    meaning = f"Nearly all captions are in one language ({main}), and these are not."
    return [FindingRule("language", "captions in another language", meaning, 0.2, f"language <> {quote_literal(main)}")]


def build_fault_rules(database: AuditDatabase) -> list[FindingRule]:
    """A rule for each kind of pattern: the rows of all its faults."""
    faults: dict[str, list[Fault]] = {name: [] for name in FAULT_TITLES}
    for fault in read_faults(database.files.folder) or []:
        name = fault.pattern if fault.kind == "caption" else fault.kind
        if fault.where and name in faults:
            faults[name].append(fault)
    rules = [build_fault_rule(name, group) for name, group in faults.items() if group]
    return [rule for rule in rules if can_select(database, rule.condition)]


def build_fault_rule(name: str, faults: list[Fault]) -> FindingRule:
    title, harm, advice = FAULT_TITLES[name]
    lengths = accumulate(len(fault.where or "") for fault in faults)
    terms = [f"({fault.where})" for fault, length in zip(faults, lengths, strict=True) if length < LONGEST_CONDITION]
    count = f" And {len(faults) - 1:,} more such patterns." if len(faults) > 1 else ""
    meaning = f"{start_sentence(faults[0].sentence)}{count}"
    where = " OR ".join(terms)
    return FindingRule(name, title, meaning, harm, where, advice=advice, usable=False, apart=name == "opening")


def can_select(database: AuditDatabase, condition: str) -> bool:
    """Whether a condition from a file is valid and its columns still exist."""
    try:
        sql = database.where(condition)
        database.run(f"SELECT 1 FROM {database.stored_table(sql)} WHERE {sql} LIMIT 0")
    except QueryError:
        return False
    return True
