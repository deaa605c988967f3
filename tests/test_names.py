"""Names say what a thing is: no pronouns or participles as names, and each module, function and class name once.

The table that a failing test prints shows the share of each kind of weak name, its limit, and the worst offenders.
"""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("auditor", "model", "dashboard", "jobs")
WEAK_WORDS = (
    "about after all_ around asked at back before beside between both by compared done each earlier every few "
    "found given here how it its joined judged kept known later least left less located lost made many met mine "
    "more most named near of one others own placed rest right_one said same scattered seen shown some taken that "
    "there this to told usual wanted what where_ which who "
)
WEAK_NAMES = frozenset(WEAK_WORDS.split())
ENTRY_POINTS = {"command", "main"}  # every command module and every job has one


@dataclass(frozen=True)
class Figure:
    """A share of weak names, its limit, and the worst offenders."""

    title: str
    share: float
    limit: float
    worst: list[str]

    def __str__(self) -> str:
        verdict = "ok" if self.share <= self.limit else "TOO MANY"
        return f"{self.title:<32} {self.share:>7.2%} {self.limit:>7.2%}  {verdict:<9} {', '.join(self.worst[:12])}"


def product_modules() -> dict[str, ast.Module]:
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8"))
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    }


def find_bindings(tree: ast.Module) -> Iterator[str]:
    """Names of variables and parameters, once for each place that binds them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg) and node.arg not in ("self", "cls"):
            yield node.arg


def measure_bindings(modules: Mapping[str, ast.Module]) -> Figure:
    bindings = Counter(name for tree in modules.values() for name in find_bindings(tree))
    weak = Counter({name: count for name, count in bindings.items() if name in WEAK_NAMES})
    worst = [f"{name} {count}" for name, count in weak.most_common()]
    return Figure("bindings with weak names", weak.total() / bindings.total(), 0.005, worst)


def measure_shared(title: str, limit: float, places: Iterable[tuple[str, str]]) -> Figure:
    """The share of names that occur in more than one place; `places` are pairs of a name and its file."""
    files: dict[str, set[str]] = defaultdict(set)
    for name, file in places:
        files[name].add(file)
    shared = {name: sorted(found_in) for name, found_in in files.items() if len(found_in) > 1}
    share = sum(map(len, shared.values())) / max(1, sum(map(len, files.values())))
    return Figure(title, share, limit, [f"{name} ({', '.join(found_in)})" for name, found_in in shared.items()])


def measure_names(modules: Mapping[str, ast.Module]) -> list[Figure]:
    paths = [path for path in map(Path, modules) if path.name != "__init__.py" and "commands" not in path.parts]
    top_level = [(node, file) for file, tree in modules.items() for node in tree.body]
    functions = [(node.name, file) for node, file in top_level if isinstance(node, ast.FunctionDef)]
    classes = [(node.name, file) for node, file in top_level if isinstance(node, ast.ClassDef)]
    return [
        measure_bindings(modules),
        measure_shared("module names that are shared", 0.08, ((path.name, str(path)) for path in paths)),
        measure_shared("function names that are shared", 0.08, (f for f in functions if f[0] not in ENTRY_POINTS)),
        measure_shared("class names that are shared", 0.0, classes),
    ]


def test_names_of_the_product_say_what_they_mean() -> None:
    figures = measure_names(product_modules())
    table = "\n".join(map(str, figures))
    assert all(figure.share <= figure.limit for figure in figures), f"\n{'':<32} {'share':>7} {'limit':>7}\n{table}"


@pytest.mark.parametrize(
    ("number", "sources"),
    [
        (0, {"auditor/a.py": "found = 1\nrows = 2\n"}),
        (1, {"auditor/x/a.py": "", "model/a.py": ""}),
        (2, {"auditor/a.py": "def read(): ...", "auditor/b.py": "def read(): ..."}),
        (3, {"auditor/a.py": "class Row: ...", "auditor/b.py": "class Row: ..."}),
    ],
)
def test_each_kind_of_weak_name_is_found(number: int, sources: dict[str, str]) -> None:
    figures = measure_names({name: ast.parse(f"{text}\nvalue = 0\n") for name, text in sources.items()})
    assert [figure.share > figure.limit for figure in figures] == [place == number for place in range(4)]
    assert "TOO MANY" in str(figures[number])
