"""Results of `auditor evaluate` as the Benchmarks page reads them."""

from pathlib import Path

from dashboard.benchmark_results import read_results, table
from tests.support.results import write_results


def test_results_are_read_and_others_named(tmp_path: Path) -> None:
    write_results(tmp_path / "good.json")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "torn.json").write_text('{"format": 1, "bench')
    found, passed = read_results(str(tmp_path))
    assert [one.name for one in found] == ["good"] and passed == ["list.json", "torn.json"]
    assert [row["what"] for row in table(found[0])] == ["plain", "re-ranked"]
    assert read_results(None) == ([], [])
