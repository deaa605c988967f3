"""`auditor certify`: what a hundred judgements prove of a corpus, its flags and a filter."""

from typing import TYPE_CHECKING, Any

import click

from auditor.commands.output import CORPUS_HELP, open_audit
from auditor.commands.selection import chosen_rules, selection_options
from auditor.say import say, say_json

if TYPE_CHECKING:
    from auditor.audit import Audit
    from auditor.corpus.sample import Kind
    from auditor.review.certificate import Certificate
    from auditor.review.label_bounds import Interval
    from auditor.review.label_sample import Sample


@click.command()
@click.argument("audit")
@click.option("--labels", type=click.IntRange(min=1), default=100, show_default=True, help="Rows to judge.")
@selection_options
@click.option("--keep-top", help="Keep the best share (30%) or number (100000) of the usable rows ...")
@click.option("--by", help="... by this column.")
@click.option("--sheet", type=click.Path(dir_okay=False), help="Write the rows to judge to a .csv or .html file.")
@click.option("--marks", type=click.Path(exists=True, dir_okay=False), help="Read a filled sheet into the audit.")
@click.option("--reviewer", help="Whose marks the sheet holds; by default its name is theirs.")
@click.option("--recalibrate", is_flag=True, help="Correct p_mismatch with the marks; both columns are kept.")
@click.option("--undo", is_flag=True, help="Take the correction back.")
@click.option("--seed", default=0, show_default=True, help="Which rows are drawn.")
@click.option("--corpus", help=CORPUS_HELP)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    audit: str,
    labels: int,
    sheet: str | None,
    marks: str | None,
    reviewer: str | None,
    recalibrate: bool,
    undo: bool,
    seed: int,
    corpus: str | None,
    as_json: bool,
    **rules: Any,
) -> None:
    """Draw rows of AUDIT to judge; from the marks, give 90% intervals that hold whatever p_mismatch is worth.

    The first call draws a stratified sample. Judge it on the dashboard's Review page or in a sheet; the same call
    then says how many pairs are mismatched, how precise the flag is, and, with rules as of `auditor filter`, how many
    good pairs that filter loses and how many bad ones it leaves.

    \b
    auditor certify audit/
    auditor certify audit/ --max-p-mismatch 0.2 --labels 200 --sheet judge.html
    auditor certify audit/ --marks judge.csv --recalibrate
    """
    if undo:
        take_back(audit, as_json)
        return
    opened = open_audit(audit, corpus)
    if marks:
        take_marks(opened, marks, reviewer)
    sample = opened.certification_sample(labels, seed=seed, **chosen_rules(opened, rules))
    if sheet:
        write_sheet(opened, sample, sheet)
    found = opened.certify(sample)
    if not as_json:
        show(opened, sample, found)
    corrected = correct(opened, sample, quiet=as_json) if recalibrate else None
    if as_json:
        told = {"sample": sample.name, "drawn": len(sample.rows), **found.to_dict()}
        say_json({**told, "corrected": corrected} if recalibrate else told)


def take_back(audit: str, as_json: bool) -> None:
    from auditor.review.fit_correction import undo

    undo(audit)
    if as_json:
        say_json({"corrected": False})
    else:
        say("p_mismatch is again what it was without labels")


def take_marks(audit: "Audit", path: str, reviewer: str | None) -> None:
    from auditor.review.label_sheet import keep_marks

    say(f"{keep_marks(audit.database, path, reviewer):,} marks read from {path}", err=True)


def write_sheet(audit: "Audit", sample: "Sample", target: str) -> None:
    from pathlib import Path

    from auditor.audit_folder.folder import split_target
    from auditor.errors import AuditorError
    from auditor.review.label_sheet import sample_rows, write_csv, write_html

    folder, name = split_target(target)
    if folder.exists(name):
        raise AuditorError(f"{target} exists and may hold marks: read it with --marks, or name another sheet")
    rows = sample_rows(audit.database, sample)
    if target.endswith(".csv"):
        text = write_csv(rows, audit.marks_of(sample))
    elif target.endswith(".html"):
        text = write_html(rows, pictures(audit, rows), Path(target).stem)
    else:
        raise AuditorError(f"a sheet is a .csv or .html file, not {target}")
    with folder.writing(name) as path:
        path.write_text(text, encoding="utf-8")
    say(f"{target}: {len(rows):,} rows to judge", err=True)


def pictures(audit: "Audit", rows: list[dict[str, Any]]) -> list[bytes | None]:
    """A small picture of each row; None where there is none to show."""
    from auditor.corpus.sample import span_of
    from auditor.errors import AuditorError
    from auditor.report.thumbnails import Thumbnails

    tasks: list[tuple[int, bytes, Kind]] = []
    for number, row in enumerate(rows):
        try:
            tasks.append((number, audit.media(row), row["kind"] or "image"))
        except (AuditorError, OSError):
            continue
    found: list[bytes | None] = [None] * len(rows)
    with Thumbnails(480) as thumbnails:
        spans = {number: span for number, row in enumerate(rows) if (span := span_of(row))}
        for number, made in thumbnails.map(tasks, spans):
            found[number] = made if isinstance(made, bytes) else None
    return found


def show(audit: "Audit", sample: "Sample", found: "Certificate") -> None:
    from auditor import console

    say(f"sample {sample.name}: {found.labels:,} of {len(sample.rows):,} rows judged, {found.unsure:,} unsure")
    judged = sum(mark is not None for mark in audit.marks_of(sample))
    if judged > found.labels:
        say(f"{judged - found.labels:,} more are judged out of turn: they count once those before them are judged")
    if not found.labels:
        say(
            f"judge them on the Review page of `auditor dashboard {audit.path}` (queue: certification {sample.name}),\n"
            "or write a sheet with --sheet judge.html and read it back with --marks judge.csv"
        )
        return
    console.table(table(found), f"{found.confidence:.0%} intervals")


WORDS = {
    "mismatched": "pairs that are mismatched",
    "precision": "flagged pairs that are mismatched",
    "lost": "good pairs the filter loses",
    "left": "kept pairs that are mismatched",
}


def table(found: "Certificate") -> list[dict[str, str]]:
    known: dict[str, Interval | None] = {name: getattr(found, name) for name in WORDS}
    return [
        {
            "share of": WORDS[name],
            "estimate": "" if one.estimate is None else f"{one.estimate:.1%}",
            "at least": f"{one.low:.1%}",
            "at most": f"{one.high:.1%}",
        }
        for name, one in known.items()
        if one is not None
    ]


def correct(audit: "Audit", sample: "Sample", *, quiet: bool) -> bool:
    """Whether the marks of a sample changed p_mismatch."""
    from auditor.review.fit_correction import recalibrate

    found = recalibrate(audit.database, sample, audit.marks_of(sample))
    if quiet:
        return found is not None
    if found is None:
        say("p_mismatch stays as it is: the labels agree with it, or are too few to say more")
    else:
        say(f"p_mismatch is corrected by {found.labels:,} labels; p_mismatch_without_labels keeps what it was")
    return found is not None
