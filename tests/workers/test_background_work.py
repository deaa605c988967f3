"""Work in threads gives its results to a block, and ends after an item if the block fails."""

import importlib
import time
from pathlib import Path

import pytest

from auditor.audit_folder.folder import Folder
from auditor.score import corpus_statistics
from auditor.workers.background_work import import_in_background, open_background
from auditor.workers.process_pool import SERIAL, Engine
from tests.support.planted import make_embeddings, write_planted

ITEMS = 1000


def test_a_module_is_imported_behind_its_first_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_module_of_a_test.py").write_text("import time\ntime.sleep(0.2)\nvalue = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import_in_background("slow_module_of_a_test")
    import_in_background("module_that_does_not_exist")  # its user gets the error, not the thread
    assert importlib.import_module("slow_module_of_a_test").value == 3


def test_a_block_gets_the_results_of_its_threads() -> None:
    with open_background(SERIAL) as (threads, engine):
        result = threads.submit(lambda: list(engine.each(abs, [-1, 2])))
        assert result.result() == [1, 2]


def test_an_interrupted_scoring_waits_for_an_item_of_the_search_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished: list[int] = []

    def work(item: int) -> None:
        time.sleep(0.01)
        finished.append(item)

    def search(folder: Folder, *_: object, engine: Engine) -> dict[str, float | None]:
        return {"repeats": len(list(engine.each(work, range(ITEMS))))}

    def interrupt(*_: object) -> None:
        while not finished:  # the search is at work
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(corpus_statistics, "search_duplicates", search)
    monkeypatch.setattr(corpus_statistics, "fit_topics", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_planted(tmp_path, *make_embeddings(100))
    left = len(finished)
    time.sleep(0.05)
    assert 0 < len(finished) == left < ITEMS
