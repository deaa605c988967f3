"""`auditor certify`: intervals guaranteed by a hundred judgments."""

from typing import TYPE_CHECKING, Any

import click

from auditor.commands.options import CORPUS_HELP, POSITIVE, SEED, advanced_option, audit_command, json_option, option
from auditor.commands.output import open_audit
from auditor.commands.selection import build_rules, selection_options
from auditor.terminal import print_json, print_line

if TYPE_CHECKING:
    from auditor.python_api import Audit
    from auditor.review.certificate import Certificate, LabelInterval
    from auditor.review.label_sample import LabelSample


@audit_command
@option("--labels", type=POSITIVE, default=100, help="Number of rows to judge.")
@selection_options
@advanced_option("--keep-top", help="Keep the best share (30%) or number (100000) of the usable rows ...")
@advanced_option("--by", help="... by this column.")
@option("--sheet", type=click.Path(dir_okay=False), help="Write the rows to judge to a .csv or .html file.")
@option("--marks", type=click.Path(exists=True, dir_okay=False), help="Read a completed sheet into the audit.")
@option("--reviewer", help="Name of the reviewer [default: the name of the sheet].")
@option("--recalibrate", is_flag=True, help="Correct p_mismatch by the marks; both columns are kept.")
@option("--undo", is_flag=True, help="Undo the correction.")
@advanced_option("--seed", type=SEED, default=0, help="Random seed of the sample.")
@advanced_option("--corpus", help=CORPUS_HELP)
@json_option()
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
    """Draw rows of AUDIT to judge, and compute 90% intervals from the marks that hold however good p_mismatch is.

    The first call draws a stratified sample. Judge it on the dashboard's Review page or in a sheet; the same call
    then reports how many pairs are mismatched, how precise the flag is and, with the rules of `auditor filter`, how
    many good pairs that filter loses and how many bad pairs it leaves.

    \b
    auditor certify audit/
    auditor certify audit/ --max-p-mismatch 0.2 --labels 200 --sheet judge.html
    auditor certify audit/ --marks judge.csv --recalibrate
    """
    from auditor.review.label_sheet import import_label_sheet
    from auditor.review.recalibrate import remove_correction

    if undo:
        remove_correction(audit)
        if as_json:
            print_json({"corrected": False})
        else:
            print_line("p_mismatch has its value without labels again")
        return
    opened = open_audit(audit, corpus)
    if marks:
        print_line(f"{import_label_sheet(opened.database, marks, reviewer):,} marks read from {marks}", err=True)
    sample = opened.certification_sample(labels, seed=seed, **build_rules(opened, rules))
    if sheet:
        write_label_sheet(opened, sample, sheet)
    certificate = opened.certify(sample)
    if not as_json:
        print_certificate(opened, sample, certificate)
    corrected = correct_p_mismatch(opened, sample, quiet=as_json) if recalibrate else None
    if as_json:
        correction = {"corrected": corrected} if recalibrate else {}
        print_json({"sample": sample.name, "drawn": len(sample.rows), **certificate.to_dict(), **correction})


def write_label_sheet(audit: "Audit", sample: "LabelSample", target: str) -> None:
    from pathlib import Path

    from auditor.audit_folder.folder import split_target
    from auditor.errors import AuditorError
    from auditor.report.report import preview_medium
    from auditor.review.label_sheet import build_label_csv, build_label_page, fetch_sample_rows

    folder, name = split_target(target)
    if folder.exists(name):
        raise AuditorError(f"{target} exists and may hold marks: read it with --marks, or name another sheet")
    rows = fetch_sample_rows(audit.database, sample)
    if target.endswith(".csv"):
        text = build_label_csv(rows, audit.marks_of(sample))
    elif target.endswith(".html"):
        pictures = [preview_medium(audit.database, row, 480)[0] for row in rows]
        text = build_label_page(rows, pictures, Path(target).stem)
    else:
        raise AuditorError(f"a sheet is a .csv or .html file, not {target}")
    with folder.writing(name) as path:
        path.write_text(text, encoding="utf-8")
    print_line(f"{target}: {len(rows):,} rows to judge", err=True)


def print_certificate(audit: "Audit", sample: "LabelSample", certificate: "Certificate") -> None:
    from auditor import console

    judged = f"{certificate.labels:,} of {len(sample.rows):,} rows judged"
    print_line(f"sample {sample.name}: {judged}, {certificate.unsure:,} unsure")
    out_of_order = sum(mark is not None for mark in audit.marks_of(sample)) - certificate.labels
    if out_of_order > 0:
        print_line(f"{out_of_order:,} more are judged out of order: they count once the earlier rows are judged")
    if not certificate.labels:
        print_line(
            f"judge them on the Review page of `auditor dashboard {audit.path}` (queue: certification {sample.name}),\n"
            "or write a sheet with --sheet judge.html and read it back with --marks judge.csv"
        )
        return
    console.print_table(tabulate_certificate(certificate), f"{certificate.confidence:.0%} intervals")


SHARES = {
    "mismatched": "pairs that are mismatched",
    "precision": "flagged pairs that are mismatched",
    "lost": "good pairs the filter loses",
    "left": "kept pairs that are mismatched",
}


def tabulate_certificate(certificate: "Certificate") -> list[dict[str, str]]:
    intervals: dict[str, LabelInterval | None] = {text: getattr(certificate, name) for name, text in SHARES.items()}
    return [
        {
            "share of": text,
            "estimate": "" if interval.estimate is None else f"{interval.estimate:.1%}",
            "at least": f"{interval.low:.1%}",
            "at most": f"{interval.high:.1%}",
        }
        for text, interval in intervals.items()
        if interval is not None
    ]


def correct_p_mismatch(audit: "Audit", sample: "LabelSample", *, quiet: bool) -> bool:
    """Correct p_mismatch by the marks of a sample; returns whether they changed it."""
    from auditor.review.recalibrate import recalibrate

    correction = recalibrate(audit.database, sample, audit.marks_of(sample))
    outcome = "stays as it is: the labels agree with it, or are too few to tell"
    if correction is not None:
        outcome = f"is corrected by {correction.labels:,} labels; p_mismatch_without_labels keeps the old values"
    if not quiet:
        print_line(f"p_mismatch {outcome}")
    return correction is not None
