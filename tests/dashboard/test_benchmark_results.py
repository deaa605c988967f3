"""Results of `auditor evaluate` as the Benchmarks page reads them."""

from pathlib import Path

from dashboard.benchmark_results import list_metrics, read_results
from tests.support.results import write_results


def test_results_are_read_and_others_named(tmp_path: Path) -> None:
    write_results(tmp_path / "good.json")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "torn.json").write_text('{"format": 1, "bench')
    results, other_files = read_results(str(tmp_path))
    assert [result.name for result in results] == ["good"] and other_files == ["list.json", "torn.json"]
    assert [row["method"] for row in list_metrics(results[0])] == ["plain", "re-ranked"]
    assert read_results(None) == ([], [])
