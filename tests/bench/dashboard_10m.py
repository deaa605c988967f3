"""Time each interaction of each dashboard page on ten million rows, from the click to the last element.

Run as `python -m tests.bench.dashboard_10m [ROWS]`. The pages run in Streamlit without a browser (AppTest), on the
synthetic audit of tests/bench/query_10m.py, in the order of the table. The first page opens the audit: for the first
time in a process of its own, and again with what that process has stored. Each interaction runs queries that were not
cached before. After the first page the columns are loaded into memory in the
background; the wait for that has its own line. Compare processor seconds if the machine is busy.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench.query_10m import RESULTS, ROWS, made_audit

APP = Path(__file__).resolve().parents[2] / "dashboard" / "app.py"
FIRST_PAGE = "--first-page"
Act = Callable[[Any], Any]


def open_page(page: str, /, **query: str) -> Any:
    from streamlit.testing.v1 import AppTest
    from streamlit.util import calc_hash

    app = AppTest.from_file(str(APP), default_timeout=300)
    app._page_hash = calc_hash(page if page != "overview" else "")  # switch_page() does not support st.navigation
    for name, value in query.items():
        app.query_params[name] = value
    return app


def sample_query(path: Path) -> dict[str, str]:
    from auditor.python_api import Audit

    row = Audit(path).page("duplicate_of IS NOT NULL", limit=1).to_pylist()[0]
    return {"uid": row["uid"], "shard": row["shard"], "caption": str(row["caption_index"])}


def visits(path: Path) -> list[tuple[str, dict[str, str], list[tuple[str, Act]]]]:
    """Pages with their queries and interactions."""
    return [
        (
            "overview",
            {},
            [("density of media", lambda app: app.segmented_control(key="density").set_value("media"))],
        ),
        (
            "browse",
            {},
            [
                ("next page", lambda app: app.button(key="next").click()),
                ("kind = video", choose_videos),
                ("sort by similarity", lambda app: app.selectbox(key="sort").select("similarity")),
                ("SQL condition", lambda app: app.text_input(key="where").set_value("topic = 3 AND width > 300")),
                ("a word in captions", lambda app: app.text_input(key="text").set_value("dog")),
            ],
        ),
        ("browse, page 100,000", {"page": "100000"}, []),
        ("review", {}, [("random queue", lambda app: app.selectbox(key="queue").select("random"))]),
        (
            "map",
            {},
            [
                ("coloured by topic", lambda app: app.selectbox(key="colour").select("topic")),
                ("map of captions", lambda app: app.segmented_control(key="over").set_value("captions")),
            ],
        ),
        ("map, with a selection", {"shape": "-0.5,-0.5;0.2,0.1;0.4,0.6;-0.3,0.7"}, []),
        ("shards", {}, [("by topic", lambda app: app.selectbox(key="by").select("topic"))]),
        ("sample", sample_query(path), [("mark it good", lambda app: app.button(key="mark-good").click())]),
        (
            "thresholds",
            {},
            [
                ("move p_mismatch", lambda app: halfway(app.select_slider(key="max_p_mismatch"))),
                ("move similarity", lambda app: halfway(app.select_slider(key="min_similarity"))),
                ("keep the best 30%", lambda app: app.slider(key="keep_top").set_value(30)),
                (
                    "how the kept set differs",
                    lambda app: app.segmented_control(key="look").set_value("how the kept set differs"),
                ),
            ],
        ),
    ]


def choose_videos(app: Any) -> Any:
    """Choose a value of a facet, which AppTest cannot click."""
    app.query_params["kind"] = "video"
    return app


def halfway(slider: Any) -> Any:
    """Move a slider to the middle of its values."""
    return slider.set_value(slider.options[len(slider.options) // 2])


def until_in_memory(path: Path) -> float:
    """Seconds until the columns of the pages are in memory."""
    from dashboard import audit_source

    started = time.monotonic()
    database = audit_source._open_database(str(path), None, audit_source.read_audit_state(str(path)))
    while database.memory is None and time.monotonic() - started < 600:
        time.sleep(0.1)
    return time.monotonic() - started


def timed(act: Callable[[], Any]) -> dict[str, float]:
    started, used = time.monotonic(), time.process_time()
    app = act()
    seconds = {"seconds": time.monotonic() - started, "processor s": time.process_time() - used}
    assert not app.exception, [error.value for error in app.exception]
    return seconds


def time_other_process() -> dict[str, float]:
    """Open the first page in a process of its own, imports included."""
    command = [sys.executable, "-m", "tests.bench.dashboard_10m", FIRST_PAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def main(rows: int) -> None:
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state  # nothing is stored yet
        time_pages(rows)


def time_pages(rows: int) -> None:
    from auditor import console
    from auditor.dashboard_settings import Settings

    path = made_audit(rows)
    os.environ |= Settings((str(path),)).environment()
    (path / "reviews.jsonl").unlink(missing_ok=True)  # the mark of an earlier run
    load = os.getloadavg()[0]
    table: list[dict[str, Any]] = [{"page": "overview", "interaction": "first visit ever", **time_other_process()}]
    for page, query, actions in visits(path):
        app = open_page(page.split(",")[0], **query)
        table.append({"page": page, "interaction": "first visit", **timed(app.run)})
        if page == "overview":
            table.append({"page": "", "interaction": "columns in memory, after", "seconds": until_in_memory(path)})
        for words, act in actions:
            table.append({"page": page, "interaction": words, **timed(lambda act=act, app=app: act(app).run())})
    shown = [
        {name: round(value, 2) if isinstance(value, float) else value for name, value in line.items()} for line in table
    ]
    console.print_table(shown, f"{rows:,} rows, {os.cpu_count()} cores, load {load:.1f} before the run")
    result = {"rows": rows, "cores": os.cpu_count(), "load": load, "interactions": table}
    (RESULTS / "dashboard_10m.json").write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    if FIRST_PAGE in sys.argv[1:]:
        print(json.dumps(timed(open_page("overview").run)))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
