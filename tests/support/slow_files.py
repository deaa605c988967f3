"""Write tests/slow_files.txt: the seconds of each slow test file, from the output of `pytest --durations=0`.

    make test PYTEST_OPTIONS='--durations=0 --durations-min=0.05' > log; python -m tests.support.slow_files log

tests/conftest.py starts the slowest files first, and `make test-fast` leaves out all files of the list.
"""

import re
import sys
from collections import Counter
from pathlib import Path

LIST = Path(__file__).parents[1] / "slow_files.txt"
SLOW_SECONDS = 4.0
DURATION = re.compile(r"^(\d+\.\d+)s (?:call|setup|teardown) +tests/(\S+?\.py)::", re.MULTILINE)


def sum_durations(log: str) -> Counter[str]:
    """Seconds by test file."""
    seconds: Counter[str] = Counter()
    for duration, name in DURATION.findall(log):
        seconds[name] += float(duration)  # type: ignore[assignment]
    return seconds


def read_slow_files() -> dict[str, float]:
    """The listed files with their seconds, the slowest first."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return {name: float(seconds) for seconds, name in (line.split() for line in lines)}


def main() -> None:
    durations = sum_durations(Path(sys.argv[1]).read_text(encoding="utf-8"))
    slow = [f"{seconds:.0f} {name}\n" for name, seconds in durations.most_common() if seconds >= SLOW_SECONDS]
    LIST.write_text("".join(slow), encoding="utf-8")


if __name__ == "__main__":
    main()
