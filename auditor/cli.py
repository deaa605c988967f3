"""The `auditor` command: finds the subcommand, runs it, and prints errors meant for users as one line.

Each subcommand is a module with a click command named `command`, in the folder of `auditor/commands` that its group is
named after. Only the subcommand that runs is imported, so commands that read an audit never wait for torch.
"""

import atexit
import difflib
import gc
import importlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click

from auditor import __version__
from auditor.errors import AuditorError, ResumableInterrupt
from auditor.terminal import print_line

# Group -> command -> purpose, in the order of the help.
COMMAND_GROUPS = {
    "Everyday": {
        "audit": "Sweep a corpus and score every pair.",
        "encoders": "Try models on a sample of a corpus: which one can judge it?",
        "dashboard": "Browse an audit.",
        "thresholds": "Show what each cut-off removes and what it costs.",
        "filter": "Write the part of the corpus that is worth keeping.",
        "query": "Query an audit in SQL.",
        "report": "Write one HTML file to mail.",
        "check": "Pass or fail by the limits of a budget, for CI.",
    },
    "Look closer": {
        "summary": "Show what an audit found.",
        "worst": "List the most suspicious rows by any column.",
        "search": "Find the rows nearest to a text, a picture or a row.",
        "explain": "Show the evidence behind one row.",
        "compare": "Compare two audits.",
        "overlap": "Find media and captions that are also in another corpus, such as a test set.",
        "certify": "Compute guaranteed intervals from a hundred judgments.",
    },
    "Repair and export": {
        "faults": "Find faults that come in patterns: shifts, mixed-up blocks, bad shards, boilerplate.",
        "repair": "Return captions to the media they belong to.",
        "edits": "List the captions that people have edited.",
        "join": "Add the columns of a file to an audit.",
        "towards": "Add the similarity of each medium to a target set as a column.",
        "apply": "Add the columns of a function or of a linear head on embeddings.",
        "tag": "Add columns by prompts, or by marked examples.",
        "weigh": "Write weights, or repeat uids by weight, instead of cutting.",
        "export": "Export rows to FiftyOne or a spreadsheet.",
        "card": "Write what was found into a dataset card.",
    },
    "Score and verify": {
        "score": "Score an audit again from its stored embeddings.",
        "fit": "Fit prototypes on the stored embeddings of an audit.",
        "verify": "Read a random sample of the corpus again and compare.",
    },
    "Train and evaluate": {
        "train": "Train PAU on a corpus.",
        "import-pau": "Convert a checkpoint of the authors' released program.",
        "pack": "Convert the files of a benchmark to shards.",
        "evaluate": "Measure retrieval on a benchmark.",
        "reproduce": "Run an analysis of the paper from data to table.",
    },
    "Start": {
        "demo": "Generate a corpus with known defects, train on it and audit it.",
        "doctor": "Check the installation.",
    },
}
HELP = ["-h", "--help"]
STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
COMMANDS = {name: purpose for group in COMMAND_GROUPS.values() for name, purpose in group.items()}
MODULES = {
    name: f"auditor.commands.{title.lower().replace(' ', '_')}.{name.replace('-', '_')}"
    for title, group in COMMAND_GROUPS.items()
    for name in group
}


class LazyCommands(click.Group):
    """Imports a subcommand only if it runs or its help is printed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(MODULES[cmd_name])
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and (nearest := difflib.get_close_matches(args[0], COMMANDS, 1)):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {nearest[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for title, commands in COMMAND_GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), purpose) for name, purpose in commands.items()])


@click.group(cls=LazyCommands, context_settings={"help_option_names": HELP})
@click.version_option(__version__, prog_name="auditor")
def cli() -> None:
    """Find broken files, mismatched captions and vague captions in image-text and video-text datasets.

    Start with `auditor demo --out demo`.
    """


# Errors that a user can act on, by module: counted only if the module has been imported.
USER_ERRORS = (
    ("model.model_errors", "ModelError"),
    ("pyarrow", "ArrowException"),
    ("duckdb", "Error"),
    ("safetensors", "SafetensorError"),
    ("botocore.exceptions", "BotoCoreError"),  # no credentials, no such address
    ("botocore.exceptions", "ClientError"),
    ("aiohttp", "ClientError"),
    ("google.auth.exceptions", "GoogleAuthError"),
    ("gcsfs.retry", "HttpError"),
)


def describe_error(error: Exception) -> str | None:
    """The message of an error that a user can act on; None for a bug."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    types = (getattr(sys.modules[module], name) for module, name in USER_ERRORS if module in sys.modules)
    if isinstance(error, (AuditorError, OSError, *types)):
        return str(error) or type(error).__name__
    package = error.name if isinstance(error, ModuleNotFoundError) else None
    if package and package.split(".")[0] not in {"auditor", "model", "dashboard", "jobs"}:
        return f"{package} is not installed; pip install 'pau-auditor[all]'"
    return None


def print_error(message: str) -> None:
    print_line(f"auditor: {message}", err=True)


def interrupt_on_signals() -> None:
    """Let SIGTERM and SIGHUP (a closed terminal) stop a command as Ctrl-C does; `nohup` still ignores SIGHUP."""
    if threading.current_thread() is threading.main_thread():
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, interrupt_once)


def interrupt_once(*_: object) -> None:
    """Closing a terminal sends several signals; a second one must not stop the cleanup."""
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which fails if the next signal is pending
    raise KeyboardInterrupt


def run_command_line(arguments: Sequence[str] | None = None, command: click.Command = cli) -> int:
    """Run the command line, or a job, and return its exit code."""
    interrupt_on_signals()
    try:
        name = "auditor" if command is cli else f"python jobs/{Path(sys.argv[0]).name}"
        code = command.main(args=arguments, prog_name=name, standalone_mode=False, help_option_names=HELP)
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort as error:
        hint = f"; {error.__cause__}" if isinstance(error.__cause__, ResumableInterrupt) else ""
        print_error(f"stopped{hint}")
        return 130
    except BrokenPipeError:  # the reader (head, less) has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        message = describe_error(error)
        if message is None:
            raise
        print_error(message)
        return 2 if list(arguments or sys.argv[1:])[:1] == ["check"] else 1  # there, 1 is a broken limit


def main() -> None:
    gc.set_threshold(10_000)  # not 700: the objects of an import stay
    exit_codes: list[int] = []
    atexit.register(leave_process, exit_codes)  # the first to be registered is the last to be called
    exit_codes.append(run_command_line())
    sys.exit(exit_codes[0])


def leave_process(exit_codes: Sequence[int]) -> None:
    """End the process without freeing each object, which takes 0.1 s after DuckDB was imported and 0.5 after torch.

    Threads have ended and everything is closed by now, except what has crashed.
    """
    with suppress(OSError, ValueError):  # the reader of a pipe has closed it: Python reports that
        for stream in filter(None, (sys.stdout, sys.stderr)):  # None if it was closed before the start
            stream.flush()
        if exit_codes:
            os._exit(exit_codes[0])


if __name__ == "__main__":
    main()
