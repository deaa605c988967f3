"""What an audit found, in one record: rows by status and kind, flags, the estimated noise, typical values, reviews."""

from dataclasses import asdict, dataclass
from typing import Any

from auditor.audit_folder.fault_records import read_faults
from auditor.query.database import AuditDatabase
from auditor.query.distributions import (
    TimeShifts,
    joined_ranges,
    ranges_sql,
    reference_step,
    time_shifts,
    typical_values,
)
from auditor.schema import FLAGS, HEADLINES

MOST_FAULTS = 10  # shown

# What every page that shows the estimated share says of it.
AT_LEAST = "It is a lower bound: captions of related media look right to the model, and only labels can show them."


@dataclass(frozen=True)
class Noise:
    """The estimated share of mismatched pairs of one kind, with its interval.

    Estimated without labels it is a lower bound (`at_least`): captions of related media look right to the model.
    """

    kind: str
    share: float
    low: float
    high: float
    pairs: int
    at_least: bool = True  # False where labels have corrected it

    def words(self) -> str:
        return f"{'at least ' if self.at_least else ''}{self.share:.1%} ({self.low:.1%} - {self.high:.1%})"


@dataclass(frozen=True)
class Summary:
    path: str
    state: str
    rows: int
    status: dict[str, int]
    kinds: dict[str, int]  # usable media
    captions: dict[str, int]  # usable rows of each kind, one for each caption of a medium
    flags: dict[str, int]  # flag -> usable rows that carry it
    duplicates: int
    unscored: int  # usable rows without p_mismatch
    noise: list[Noise]
    typical: dict[str, dict[str, float]]  # column -> {"p5", "median", "p95"}
    time_shifts: TimeShifts | None  # None: no video has timed captions enough
    marks: dict[str, int]
    faults: list[str] | None  # the patterns that `auditor faults` found, in words; None: nobody has looked
    notes: list[str]

    @property
    def usable(self) -> int:
        return self.status.get("ok", 0)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "usable": self.usable}

    def lines(self) -> list[tuple[str, str]]:
        """The summary as (what, how much) for people."""
        found = [("rows", f"{self.rows:,}"), ("usable", of(self.usable, self.rows))]
        found += [(f"  {status}", of(count, self.rows)) for status, count in self.status.items() if status != "ok"]
        found += [(f"{kind}s", media_and_captions(count, self.captions[kind])) for kind, count in self.kinds.items()]
        for noise in self.noise:
            found.append((f"mismatched {noise.kind}s", noise.words()))
        if self.unscored:
            found.append(("no estimate", f"{of(self.unscored, self.usable)}: too few pairs of their kind"))
        found += [(f"flagged {flag}", of(count, self.usable)) for flag, count in self.flags.items()]
        found.append(("duplicates", of(self.duplicates, self.usable)))
        if self.time_shifts:
            found.append(("out of step", self.time_shifts.words()))
        for column, values in self.typical.items():
            found.append((column, f"{values['median']:.3g}  ({values['p5']:.3g} - {values['p95']:.3g})"))
        found += [(f"reviewed {mark}", f"{count:,}") for mark, count in self.marks.items()]
        found += [("fault" if i == 0 else "", words) for i, words in enumerate((self.faults or [])[:MOST_FAULTS])]
        if self.faults and len(self.faults) > MOST_FAULTS:
            found.append(("", f"and {len(self.faults) - MOST_FAULTS:,} more: `auditor faults {self.path}`"))
        return found

    def __str__(self) -> str:
        width = max(len(label) for label, _ in self.lines())
        text = [f"{label:<{width}}  {value}" for label, value in self.lines()]
        return "\n".join([f"{self.path} ({self.state})", *text, *(f"note: {note}" for note in self.notes)])


def fault_words(database: AuditDatabase) -> list[str] | None:
    faults = read_faults(database.files.folder)
    return None if faults is None else [fault.sentence for fault in faults]


def media_and_captions(media: int, captions: int) -> str:
    return f"{media:,}" if media == captions else f"{media:,} with {captions:,} captions"


def of(part: int, whole: int) -> str:
    return f"{part:,} ({part / whole:.1%})" if whole else f"{part:,}"


def noise_estimates(statistics: dict[str, Any]) -> list[Noise]:
    """From the manifest; absent while an audit has not been scored."""
    return [
        Noise(
            kind,
            found["pi0"],
            found["pi0_low"],
            found["pi0_high"],
            found.get("pairs", 0),
            "pi0_without_labels" not in found,
        )
        for kind, found in (statistics or {}).items()
        if found and found.get("pi0") is not None
    ]


def count_by_usable_captions(database: AuditDatabase, usable: list[dict[str, Any]]) -> None:
    """The first caption of a video stands for it; where its span is bad, the next usable one does."""
    found = database.rows(
        "SELECT kind, count(*) AS n FROM (SELECT kind, min(caption_index) AS first FROM measured WHERE status = 'ok' "
        "GROUP BY kind, shard, key) WHERE first > 0 GROUP BY kind"
    )
    more = {row["kind"]: row["n"] for row in found}
    for group in usable:
        group["media"] += more.get(group["kind"], 0)


def summarise(database: AuditDatabase) -> Summary:
    flags = ", ".join(f"count(*) FILTER ({flag}) AS {flag}" for flag in FLAGS)
    groups = database.rows(
        "SELECT status, kind, count(*) AS n, count(*) FILTER (coalesce(caption_index, 0) = 0) AS media, "
        f"count(duplicate_of) AS duplicates, count(*) - count(p_mismatch) AS unscored, {flags}, "
        f"count(time_shift) AS timed, {ranges_sql(HEADLINES)} "
        "FROM measured GROUP BY status, kind ORDER BY n DESC, status, kind"
    )
    database.cached("ranges", lambda: joined_ranges(groups, HEADLINES))  # those of value_range: found on the way
    status: dict[str, int] = {}
    for group in groups:
        status[group["status"]] = status.get(group["status"], 0) + group["n"]
    usable = [group for group in groups if group["status"] == "ok"]
    if "bad_span" in status:
        count_by_usable_captions(database, usable)
    is_timed = any(group["kind"] == "video" for group in usable) and any(group["timed"] for group in groups)
    marks = database.rows("SELECT review, count(*) AS n FROM verdicts GROUP BY review ORDER BY review")
    return Summary(
        path=database.path,
        state=database.state,
        rows=sum(status.values()),
        status=status,
        kinds={group["kind"]: group["media"] for group in usable},
        captions={group["kind"]: group["n"] for group in usable},
        flags={flag: sum(group[flag] for group in usable) for flag in FLAGS},
        duplicates=sum(group["duplicates"] for group in usable),
        unscored=sum(group["unscored"] for group in usable) if database.state == "complete" else 0,
        noise=noise_estimates(database.manifest.get("statistics", {})),
        typical=typical_values(database, HEADLINES),
        time_shifts=time_shifts(database) if is_timed else None,
        marks={row["review"]: row["n"] for row in marks},
        faults=fault_words(database),
        notes=[
            *database.notes,
            *([f"medians are of every {step}th shard"] if (step := reference_step(database)) > 1 else []),
        ],
    )
