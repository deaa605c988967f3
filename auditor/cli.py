"""The `auditor` command: finds the subcommand, runs it, and turns errors meant for people into one line.

Each subcommand is a module of `auditor.commands` with a click command named `command`; only the one that is
called is imported, so that reading an audit never waits for torch.
"""

import importlib
import os
import sys
from collections.abc import Sequence

import click

from auditor import __version__
from auditor.errors import AuditorError, Interrupted
from auditor.say import say

# name -> what it is for, in the order the help shows them
COMMANDS = {
    "audit": "Sweep a corpus and score every pair.",
    "score": "Score an audit again from its stored embeddings.",
    "verify": "Re-read a random sample of the corpus and compare.",
    "summary": "What an audit found.",
    "worst": "The most suspicious rows by any column.",
    "query": "Ask an audit in SQL.",
    "search": "The nearest rows to a text, a picture or a row.",
    "explain": "The evidence behind one row.",
    "thresholds": "What each cut-off removes, and what it costs.",
    "certify": "What a hundred judgements prove.",
    "faults": "Faults that come in patterns: shifts, mixed-up blocks, bad shards, boilerplate.",
    "repair": "Put captions back to the media they belong to.",
    "overlap": "What of a corpus is also in another, such as a test set.",
    "join": "Add the columns of a file to an audit.",
    "filter": "Write the part of the corpus that is worth keeping.",
    "export": "Rows for FiftyOne and spreadsheets.",
    "weigh": "Weights instead of a cut, or uids as often as they are worth.",
    "compare": "Two audits side by side.",
    "report": "One HTML file to mail.",
    "dashboard": "Browse an audit.",
    "train": "Train PAU on a corpus.",
    "fit": "Fit prototypes on the stored embeddings of an audit.",
    "pack": "Turn a benchmark's files into shards.",
    "evaluate": "Retrieval on a benchmark.",
    "reproduce": "Run an analysis of the paper from data to table.",
    "demo": "Generate a corpus with known defects, train on it and audit it.",
    "doctor": "Check the installation.",
}


class LazyCommands(click.Group):
    """Imports a subcommand only when it is run or its own help is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"auditor.commands.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="auditor")
def cli() -> None:
    """Audit image-text and video-text corpora: broken files, ambiguous samples, mismatched pairs.

    Start with `auditor demo --out demo`.
    """


def meant_for_people() -> tuple[type[BaseException], ...]:
    """Errors whose message says it all; those of `model` only where `model` has been imported."""
    loaded = sys.modules.get("model.model_errors")
    return (AuditorError, loaded.ModelError) if loaded else (AuditorError,)


def of_files() -> tuple[type[BaseException], ...]:
    """Errors of the operating system, of Parquet, of weights and of object stores: files that cannot be had."""
    named = (
        ("pyarrow", "ArrowException"),
        ("duckdb", "Error"),
        ("safetensors", "SafetensorError"),
        ("botocore.exceptions", "BotoCoreError"),  # no credentials, no such address
        ("botocore.exceptions", "ClientError"),
        ("aiohttp", "ClientError"),
        ("google.auth.exceptions", "GoogleAuthError"),
        ("gcsfs.retry", "HttpError"),
    )
    return (OSError, *(getattr(sys.modules[module], name) for module, name in named if module in sys.modules))


def file_trouble(error: BaseException) -> str:
    """The file and what was wrong with it."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    return str(error) or type(error).__name__


def tell(message: str) -> None:
    """In one line, without the control characters that a key or a path may hold."""
    say(f"auditor: {message}", err=True)


def run(arguments: Sequence[str] | None = None, command: click.Command = cli) -> int:
    """Run the command line (or a job, which is a command too) and return its exit code."""
    try:
        code = command.main(args=arguments, prog_name="auditor", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort as error:
        how = f"; {error.__cause__}" if isinstance(error.__cause__, Interrupted) else ""
        tell(f"stopped{how}")
        return 130
    except BrokenPipeError:  # the reader (head, less) went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if isinstance(error, meant_for_people()):
            tell(str(error))
            return 1
        if isinstance(error, of_files()):
            tell(file_trouble(error))
            return 1
        missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
        if missing and missing.split(".")[0] not in {"auditor", "model", "dashboard", "jobs"}:
            say(f"auditor: {missing} is not installed; pip install 'pau-auditor[all]'", err=True)
            return 1
        raise


def main() -> None:
    sys.exit(run())


if __name__ == "__main__":
    main()
