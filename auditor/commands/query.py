"""`auditor query`: any SELECT over an audit, in a sandbox.

The process is a second sandbox around DuckDB's: the system refuses it more memory, and it ends where DuckDB does not.
"""

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from auditor.commands.output import open_audit, output_options, show
from auditor.say import say

SHOWN = 100
SPARE = 2**30  # bytes of address space beside the query's: stacks, arenas, what is printed
PATIENCE = 5.0  # seconds that DuckDB gets to stop by itself


@click.command()
@click.argument("audit")
@click.argument("sql")
@click.option("--limit", type=click.IntRange(min=1), help="Rows at most; on a terminal 100 unless given.")
@click.option("--timeout", type=float, default=60.0, show_default=True, help="Seconds a query may take.")
@click.option("--memory", default="1500MB", show_default=True, help="Memory a query may take.")
@output_options
def command(
    audit: str,
    sql: str,
    limit: int | None,
    timeout: float,
    memory: str,
    as_json: bool,
    as_csv: bool,
    parquet: str | None,
) -> None:
    """Ask AUDIT in SQL (DuckDB's). Tables: samples (measurements, flags, review) and reviews.

    \b
    auditor query audit/ "SELECT kind, count(*), avg(p_mismatch) FROM samples GROUP BY kind"
    auditor query audit/ "DESCRIBE samples"
    """
    from auditor.query.sandbox import Limits

    machine = as_json or as_csv or parquet is not None
    opened = open_audit(audit, limits=Limits(memory, timeout))
    most = limit or (None if machine else SHOWN + 1)
    with process_limits(opened.database.sandbox.memory_limit(), timeout):
        rows = opened.sql(sql, limit=most)
    cut = not machine and limit is None and len(rows) > SHOWN
    show(rows.slice(0, SHOWN) if cut else rows, as_json=as_json, as_csv=as_csv, parquet=parquet)
    if cut:
        say(f"only the first {SHOWN} rows are shown; --limit N, --csv, --json and --parquet show more", err=True)


@contextmanager
def process_limits(memory: int, seconds: float) -> Iterator[None]:
    """Hold this process to the limits of a query while one runs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = address_space()
    if used is not None:
        wanted = used + 2 * memory + SPARE
        resource.setrlimit(resource.RLIMIT_AS, (min(wanted, hard) if hard >= 0 else wanted, hard))
    timer = threading.Timer(min(seconds + PATIENCE, threading.TIMEOUT_MAX), end, [seconds])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def address_space() -> int | None:
    """Bytes that this process has mapped; None where the system does not tell."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[0]) * resource.getpagesize() if status.exists() else None


def end(seconds: float) -> None:
    say(f"auditor: stopped after {seconds:g} s, the time limit of a query", err=True)
    os._exit(1)
