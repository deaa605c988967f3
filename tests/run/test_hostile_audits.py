"""Every command on a whole audit of which one file is damaged: it works, or says in one line what is wrong.

`python -m tests.run.test_hostile_audits [FILE...]` tries every damage of every file with every command, in any order,
which takes many minutes; the test draws some of them.
"""

import contextlib
import io
import random
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.side_files import mark_repair
from auditor.cli import run_command_line
from auditor.query.database import AuditDatabase
from auditor.run.audit_config import AuditConfig
from auditor.run.run_audit import run_audit
from auditor.sweep.sweep_config import SweepConfig
from tests.support.corpora import write_corpus, write_random_model
from tests.support.damage import HOSTILE, cut_in_half, empty_file, replace_by_broken_link, replace_by_folder, zero_bytes

SECONDS = 120
CORPUS_OPTIONS = ["--frames", "4", "--batch-size", "8", "--decoders", "1", "--quiet"]
COMMANDS = [
    ["summary", "{audit}"],
    ["worst", "{audit}"],
    ["query", "{audit}", "SELECT count(*), avg(beauty) FROM samples WHERE p_mismatch > 0.5"],
    ["thresholds", "{audit}"],
    ["filter", "{audit}", "--max-p-mismatch", "0.5", "--where", "beauty > 0.1", "--dry-run"],
    ["filter", "{audit}", "--no-overlap", "{other}", "--out", "{here}/kept.npy", "--force"],
    ["filter", "{audit}", "--where", "true", "--out", "{here}/clean", "--force"],
    ["compare", "{audit}", "{other}"],
    ["explain", "{audit}", "000003"],
    ["search", "{audit}", "--like", "000003"],
    ["report", "{audit}", "--out", "{here}/report.html", "--no-media", "--force"],
    ["faults", "{audit}"],
    ["repair", "{audit}", "--json"],
    ["certify", "{audit}", "--labels", "10"],
    ["certify", "{audit}", "--undo"],
    ["join", "{audit}", "{here}/beauty.csv", "--on", "key", "--force"],
    ["overlap", "{audit}", "{other}"],
    ["overlap", "{other}", "{audit}"],
    ["verify", "{audit}", "--files"],
    ["verify", "{audit}", "-n", "2"],
    ["score", "{audit}", "--quiet"],
    ["fit", "{audit}", "--out", "{here}/head"],
    ["audit", "{corpus}", "--out", "{audit}", "--model", "{model}", *CORPUS_OPTIONS],
    ["audit", "{corpus}", "--out", "{audit}", "--model", "{model}", "--extend", *CORPUS_OPTIONS],
]


class Place:
    """A folder with a corpus, a model, a whole audit with all that commands put beside it, and another audit."""

    def __init__(self, here: Path) -> None:
        self.here, self.corpus, self.audit, self.other = here, here / "corpus", here / "audit", here / "other"
        self.model = f"local-dir:{here / 'model'}"

    def command(self, words: list[str]) -> list[str]:
        names = {name: str(value) for name, value in vars(self).items()}
        return [word.format(**names) if "{" in word else word for word in words]

    def make(self) -> "Place":
        write_random_model(self.here / "model")
        write_corpus(self.corpus, shards=2, size=12)
        for out in (self.audit, self.other):
            sweep = SweepConfig(frames=4, batch_size=8, decoders=1)
            run_audit(AuditConfig(str(self.corpus), str(out), self.model, quiet=True, sweep=sweep))
        (self.here / "beauty.csv").write_text("key,beauty\n" + "".join(f"{i:06d},{i / 24}\n" for i in range(24)))
        with AuditDatabase(self.audit) as database:
            rows = database.rows("SELECT uid, caption_index FROM samples ORDER BY key LIMIT 10")
        marks = "".join(f"{row['uid']},0,{'bad' if i % 2 else 'good'}\n" for i, row in enumerate(rows))
        (self.here / "marks.csv").write_text("uid,caption_index,mark\n" + marks)
        for words in (
            ["join", "{audit}", "{here}/beauty.csv", "--on", "key"],
            ["overlap", "{audit}", "{other}"],
            ["certify", "{audit}", "--labels", "10", "--marks", "{here}/marks.csv"],
        ):
            assert run_command_line(self.command(words)) == 0
        mark_repair(Folder(self.audit), rows[0]["uid"], 0, "accepted")
        return self

    def copy(self, to: Path) -> "Place":
        return Place(Path(shutil.copytree(self.here, to, symlinks=True)))

    def files(self) -> list[Path]:
        return sorted(path.relative_to(self.audit) for path in self.audit.rglob("*") if path.is_file())


def other_json(file: Path) -> None:
    file.write_text('["\\u001b[31mred", {"columns": 1}, null]')


DAMAGES: list[Callable[[Path], None]] = [
    cut_in_half,
    zero_bytes,
    empty_file,
    other_json,
    replace_by_folder,
    replace_by_broken_link,
    Path.unlink,
    *HOSTILE,
]


def stop_waiting(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} seconds")


def outcome(place: Place, words: list[str]) -> str:
    """Return an empty string if the command worked or printed a one-line error, else what it did."""
    out, err = io.StringIO(), io.StringIO()
    signal.signal(signal.SIGALRM, stop_waiting)
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run_command_line(place.command(words))
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{error!r} in {where.filename}:{where.lineno}"
    finally:
        signal.alarm(0)
    said = [line for line in err.getvalue().splitlines() if line.startswith("auditor:")]
    if code not in (0, 1) or len(said) > 1 or (code == 1 and not said and words[0] != "verify"):
        return f"exit {code}, {said or err.getvalue()[-300:]}"
    return "control characters" if "\x1b" in out.getvalue() + err.getvalue() else ""


def cases(place: Place) -> Iterator[tuple[Path, Callable[[Path], None], list[str]]]:
    for file in place.files():
        for damage in DAMAGES:
            for words in COMMANDS:
                yield file, damage, words


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("place")).make()


def test_commands_work_on_the_sound_audit(made: Place, tmp_path: Path) -> None:
    place = made.copy(tmp_path / "place")
    assert len(place.files()) >= 14
    for words in COMMANDS:
        assert not outcome(place, words), words


def test_one_damaged_file_and_any_command(made: Place, tmp_path: Path) -> None:
    every = list(cases(made))
    for number, (file, damage, words) in enumerate(random.Random(1).sample(every, 40)):
        place = made.copy(tmp_path / str(number))
        damage(place.audit / file)
        assert not outcome(place, words), (str(file), damage.__name__, words)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = Place(Path(folder) / "made").make()
        wrong = 0
        every = list(cases(made))
        random.Random(0).shuffle(every)
        for number, (file, damage, words) in enumerate(every):
            if len(sys.argv) > 1 and not any(name in str(file) for name in sys.argv[1:]):
                continue
            place = made.copy(Path(folder) / str(number))
            damage(place.audit / file)
            if found := outcome(place, words):
                wrong += 1
                print(f"{file} {damage.__name__} {' '.join(words[:1] + words[2:])}: {found}", flush=True)
            shutil.rmtree(place.here)
        print(f"{wrong} wrong", flush=True)


if __name__ == "__main__":
    main()
