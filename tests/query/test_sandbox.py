"""SQL of users cannot read or write beyond the audit, and its cost is bounded: known attacks, one by one."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from auditor.python_api import Audit
from auditor.query import sql_process
from auditor.query.sample_tables import MOST_TABLES
from auditor.query.sandbox import Limits, QueryError, Sandbox, quote_literal
from tests.support.synthetic import write_audit


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    folder = tmp_path_factory.mktemp("sandbox")
    (folder / "secret.csv").write_text("password\nhunter2\n")
    return Audit(write_audit(folder / "audit", 300, 100))


def doubled(body: str, how: str = "", times: int = 24) -> str:
    """A WITH each of whose parts names the one before it twice."""
    parts = ", ".join(f"a{i + 1} AS{how} ({body.replace('{}', f'a{i}')})" for i in range(times))
    return f"WITH a0 AS (SELECT 1 AS x), {parts} SELECT count(*) FROM a{times}"


ESCAPES = [
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM read_text('{secret}')",
    "SELECT * FROM read_blob('{secret}')",
    "SELECT * FROM read_json('{secret}')",
    "SELECT * FROM read_parquet('{secret}')",
    "SELECT * FROM parquet_metadata('{own}')",
    "SELECT * FROM read_duckdb('{secret}')",
    "SELECT * FROM sniff_csv('{secret}')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM glob('{folder}/*')",
    "SELECT * FROM '{secret}'",
    'SELECT * FROM "{secret}"',
    "SELECT * FROM '{own}'",
    "FROM query('SELECT * FROM ''{secret}''')",
    "FROM query_table('{secret}')",
    "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
    "SELECT json_execute_serialized_sql('x')",
    "SELECT (SELECT content FROM read_text('{secret}'))",
    "WITH a AS (SELECT * FROM read_text('{secret}')) SELECT * FROM a",
    'WITH "{secret}" AS (SELECT 1) SELECT * FROM "{secret}"',
    "SELECT * FROM samples WHERE key IN (SELECT content FROM read_text('{secret}'))",
    "SELECT * FROM samples JOIN LATERAL (SELECT * FROM read_text('{secret}')) ON true",
    "SELECT * FROM samples UNION ALL SELECT * FROM read_text('{secret}')",
    "DESCRIBE SELECT * FROM read_text('{secret}')",
    "SUMMARIZE FROM read_csv('{secret}')",
    "SELECT 1; SELECT 2",
    "SELECT 1; COPY (SELECT 1) TO '{folder}/out.csv'",
    "COPY (SELECT 1) TO '{folder}/out.csv'",
    "COPY (SELECT 1) TO '{own}'",
    "COPY samples TO '{folder}/out.parquet' (FORMAT parquet)",
    "EXPORT DATABASE '{folder}/out'",
    "IMPORT DATABASE '{folder}'",
    "ATTACH '{folder}/out.db'",
    "ATTACH ':memory:' AS m",
    "INSTALL httpfs",
    "LOAD httpfs",
    "FORCE INSTALL httpfs FROM 'http://127.0.0.1/x'",
    "SELECT * FROM 'http://127.0.0.1:1/x.parquet'",
    "SELECT * FROM read_parquet('s3://bucket/x.parquet')",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "RESET memory_limit",
    "PRAGMA enable_external_access = true",
    "PRAGMA database_list",
    "CALL pragma_version()",
    "CREATE TABLE t AS SELECT 1",
    "CREATE OR REPLACE VIEW samples AS SELECT 1",
    "CREATE SECRET (TYPE s3)",
    "CREATE MACRO f() AS TABLE SELECT * FROM read_text('{secret}')",
    "DROP VIEW samples",
    "DELETE FROM reviews",
    "INSERT INTO reviews VALUES (1)",
    "UPDATE reviews SET mark = 'good'",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "VACUUM",
    "CHECKPOINT",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{folder}/out.csv'",
    "SELECT getenv('HOME')",
    "SELECT current_setting('allowed_paths')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM duckdb_views()",
    "SELECT * FROM duckdb_logs()",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM pg_catalog.pg_tables",
    "SHOW TABLES",
    "SELECT write_log('x')",
    # tables by scope: a WITH is known to what is inside its query, and to what comes after it
    "SELECT * FROM (WITH pg_settings AS (SELECT 1) SELECT 1) t, pg_settings",
    "WITH a AS (SELECT * FROM pg_settings), pg_settings AS (SELECT 1) SELECT * FROM a",
    "WITH pg_settings AS (SELECT * FROM pg_settings) SELECT * FROM pg_settings",
    "SELECT (WITH measured AS (SELECT 1) SELECT 1), (SELECT max(key) FROM measured)",
    "SELECT * FROM measured",
    "SELECT * FROM memory.main.samples",
    "SELECT * FROM os",
    "",
    "   ",
    "-- nothing",
]

# Queries that are too large or too slow, or that look like it: each ends in an error or in a result of bounded size.
EXPENSIVE = [
    "SELECT sleep_ms(60000)",
    "SELECT pg_sleep(60)",
    "SELECT repeat('x', 3000000000)",
    "SELECT len(range(3000000000))",
    "SELECT list_reduce(['x', 'y'], lambda a, b: a || a || a)",
    "SELECT lpad('x', 1000000000, 'y')",
    # texts and lists of any size, outside DuckDB's memory limit
    "SELECT damerau_levenshtein(caption, caption) FROM samples",
    "SELECT levenshtein(left(caption, 2000), 'x') FROM samples",
    "SELECT levenshtein(substr(caption, 1), 'x') FROM samples",
    "SELECT levenshtein(lower(caption), 'x') FROM samples",
    "SELECT hex(hex(caption)) FROM samples",
    "SELECT main.hex(caption) FROM samples",
    "SELECT bitstring('1', 2000000000)::VARCHAR",
    "SELECT caption::BIT FROM samples",
    "SELECT caption::BLOB::VARCHAR FROM samples",
    "SELECT caption::VARCHAR[] FROM samples",
    "SELECT replace(caption, 'a', 'aaaaaaaa') FROM samples",
    "SELECT regexp_replace(caption, '', caption, 'g') FROM samples",
    "SELECT caption || caption FROM samples",
    "WITH RECURSIVE t(s) AS (SELECT 'x' UNION ALL SELECT s || s FROM t) SELECT count(*) FROM t",
    "SELECT " + " || ".join(["left(caption, 200)"] * 60) + " FROM samples",
    "SELECT string_agg(caption, '') FROM samples",
    "SELECT list(a.caption) FROM samples a, samples b",
    "SELECT histogram(caption) FROM samples",
    "SELECT max(caption, 1000000) FROM samples",
    "SELECT [caption, caption] FROM samples",
    "SELECT {'a': caption}::VARCHAR FROM samples",
    "SELECT (caption, caption)::VARCHAR FROM samples",
    "SELECT t::VARCHAR FROM (SELECT caption AS a, caption AS b FROM samples) t",
    "SELECT unnamed_subquery::VARCHAR FROM (SELECT caption AS a, caption AS b FROM samples)",
    "SELECT samples FROM samples UNION ALL SELECT 'x'",
    "SELECT main.samples FROM samples UNION ALL SELECT 'x'",
    "SELECT concat(*COLUMNS(*)) FROM samples",
    "SELECT to_json(samples) FROM samples",
    "SELECT '" + "x" * 2000 + "' FROM samples",
    "SELECT " + ", ".join(["caption"] * 400) + " FROM samples",
    # functions that DuckDB cannot interrupt
    "SELECT caption LIKE '%_a%_a%_a%_a%_a%_zz' FROM samples",
    "SELECT caption GLOB '*a*a*a*a*a*a*zz' FROM samples",
    "SELECT a.caption LIKE b.caption FROM samples a, samples b",
    "SELECT regexp_matches(caption, caption) FROM samples",
    "SELECT regexp_matches(caption, '" + "a?" * 150 + "') FROM samples",
    "SELECT caption COLLATE de FROM samples",
    # plans that double with every line, which DuckDB cannot interrupt either
    doubled("SELECT * FROM {} p, {} q"),
    doubled("SELECT p.x FROM {} p, {} q", " NOT MATERIALIZED"),
    doubled("SELECT x FROM {} UNION ALL SELECT x FROM {}", " NOT MATERIALIZED"),
    "DESCRIBE " + doubled("SELECT * FROM {} p, {} q"),
    "SELECT similarity AS c0, " + ", ".join(f"c{i} + c{i} AS c{i + 1}" for i in range(24)) + " FROM samples",
    "SELECT (SELECT 1) AS c0, " + ", ".join(f"c{i} + c{i} AS c{i + 1}" for i in range(9)) + " FROM samples",
    "SELECT 1 FROM samples WHERE (" + doubled("SELECT * FROM {} p, {} q") + ") > 0",
    "SELECT count(*) FROM (SELECT " + ", ".join(["COLUMNS(*) IS NULL"] * 300) + " FROM samples a, samples b)",
    "SELECT count(*) FROM " + ", ".join(f"samples s{i}" for i in range(40)),
    "SELECT count(*) FROM samples GROUP BY CUBE (" + ", ".join(f"topic + {i}" for i in range(12)) + ")",
    "SELECT * FROM " + "(SELECT * FROM " * 2000 + "samples" + ")" * 2000,
]


@pytest.mark.parametrize("sql", ESCAPES)
def test_escapes_are_refused(audit: Audit, sql: str) -> None:
    folder = Path(audit.path).parent
    text = sql.format(secret=folder / "secret.csv", folder=folder, own=audit.database.files.all[0])
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    with pytest.raises(QueryError) as refused:
        audit.sql(text)
    assert "hunter2" not in str(refused.value) and "\n" not in str(refused.value)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert audit.count() == 300


@pytest.fixture(scope="module")
def limited(audit: Audit) -> Iterator[Audit]:
    with pytest.MonkeyPatch.context() as patch, Audit(audit.path, limits=Limits("200MB", 0.5)) as opened:
        patch.setattr(sql_process, "GRACE_SECONDS", 0.5)
        yield opened


@pytest.mark.parametrize("sql", EXPENSIVE)
def test_expensive_queries_are_bounded(limited: Audit, sql: str) -> None:
    start = time.monotonic()
    message = ""
    try:
        assert limited.sql(sql).nbytes < 200_000_000
    except QueryError as error:
        message = str(error)
    assert "\n" not in message and len(message) < 2000
    assert time.monotonic() - start < 60  # one second, on a machine that may be busy
    assert limited.count() == 300


@pytest.mark.parametrize(
    "condition",
    [
        "len(repeat(caption, 100000000)) > 1",
        "sleep_ms(60000) IS NULL",
        "caption LIKE '%_a%_a%_a%_a%_a%_zz'",
        "regexp_matches(caption, caption)",
        "damerau_levenshtein(repeat(caption, 10000), repeat(key, 10000)) > 3",
        "len(string_agg(caption, '')) > 3",
        "(" + doubled("SELECT * FROM {} p, {} q") + ") > 0",
        "(SELECT count(*) FROM samples a, samples b, samples c, samples d) > 0",
    ],
)
def test_expensive_conditions_are_bounded(limited: Audit, condition: str) -> None:
    start = time.monotonic()
    message = "where: "
    try:
        assert 0 <= limited.count(condition) <= 300
    except QueryError as error:
        message = str(error)
    assert message.startswith("where: ") and "\n" not in message
    assert time.monotonic() - start < 60
    assert limited.count() == 300


@pytest.fixture(scope="module", params=[False, True], ids=["files", "in memory"])
def opened(audit: Audit, request: pytest.FixtureRequest) -> Iterator[Audit]:
    with Audit(audit.path) as database:
        yield database.load_into_memory() if request.param else database


@pytest.mark.parametrize(
    "condition",
    [
        "replace(kind, 'a', 'b') = 'imbge'",
        "len(string_split(caption, ' ')) > 3 AND kind = 'image'",
        "key IN (SELECT key FROM samples WHERE kind = 'image')",
        "{'kind': kind}.kind = 'image'",
        "list_contains([kind], 'image')",
        "json_extract_string(to_json({'a': kind}), '$.a') = 'image'",
        "regexp_replace(kind, 'i.*', 'i') = 'i'",
        "samples.kind = 'image'",
    ],
)
def test_general_conditions_are_as_good_as_plain_ones(opened: Audit, condition: str) -> None:
    uids = opened.page("kind = 'image'", "similarity", limit=300)["uid"]
    assert opened.count(condition) == len(uids) > 0
    assert opened.page(condition, "similarity", limit=300)["uid"] == uids
    assert len(opened.keep(where=condition)) == len(opened.keep(where="kind = 'image'"))
    assert len(opened.keep(where=condition, per_medium="all")) == len(opened.keep(where="kind = 'image'"))


def test_general_conditions_follow_the_reviews(tmp_path: Path) -> None:
    with Audit(write_audit(tmp_path / "audit", 30, 10)) as opened:
        first, second = opened.page(limit=2)["uid"].to_pylist()
        kept = opened.keep(where="concat(review, '') <> 'bad'")
        assert opened.count("concat(review, '!') = 'bad!'") == 0
        opened.mark(first, "bad", reviewer="ann")
        assert opened.count("concat(review, '!') = 'bad!'") == 1
        opened.mark(second, "bad", reviewer="ann")
        assert opened.count("concat(review, '!') = 'bad!'") == 2
        assert opened.sql("SELECT count(*) AS n FROM reviews")["n"].to_pylist() == [2]
        assert not {first, second} & set(kept.uids.to_pylist())


def test_many_general_conditions_do_not_forget_the_first(audit: Audit) -> None:
    kept = audit.keep(where="concat(kind, '') = 'image'")
    for number in range(MOST_TABLES + 2):
        audit.count(f"concat(kind, '{number}') = 'image{number}'")
    assert len(kept.uids) == len(audit.keep(where="kind = 'image'"))


def test_a_dead_process_is_replaced(audit: Audit) -> None:
    for _ in range(2):
        assert audit.sql("SELECT 1 AS one")["one"].to_pylist() == [1]
        audit.database.sql_pool._idle[-1]._child.process.kill()
        audit.database.sql_pool._idle[-1]._child.process.wait()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT replace(caption, 'a', 'b'), string_split(caption, ' ') FROM samples",
        "SELECT kind, string_agg(left(caption, 3), ' ' ORDER BY key) FROM samples GROUP BY kind",
        "SELECT list_transform([1, 2], lambda x: x + 1), {'a': 1, 'b': [2]}, MAP {'a': 1}",
        "SELECT to_json(samples) FROM samples LIMIT 2",
        "SELECT * FROM json_each('{\"a\": 1}')",
        "SELECT regexp_replace(caption, '[aeiou]', '_', 'g'), regexp_extract_all(caption, '\\w+') FROM samples",
        "SELECT 'a'::ENUM('a', 'b'), DATE '2020-01-01', INTERVAL 1 DAY, 1::DECIMAL(10, 2), '1'::BLOB",
        "SELECT COLUMNS('similarity.*') FROM samples",
    ],
)
def test_the_whole_language_is_there(audit: Audit, sql: str) -> None:
    assert audit.sql(sql).num_rows >= 1


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('/etc/*')",
        "COPY (SELECT 1) TO '/tmp/auditor-escape.csv'",
        "ATTACH '/tmp/auditor-escape.db'",
        "LOAD httpfs",
        "SET threads = 1",
        "SELECT * FROM '/etc/passwd.csv'",
    ],
)
def test_the_engine_refuses_too(audit: Audit, statement: str) -> None:
    """The second wall: what would happen if the check of the text were fooled."""
    with pytest.raises(QueryError):
        audit.database.sandbox.define(statement)
    assert not list(Path("/tmp").glob("auditor-escape*"))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM samples",
        "select count(*) from samples;",
        "FROM samples SELECT count(*)",
        "WITH a AS (SELECT * FROM samples) SELECT count(*) FROM a",
        "SELECT count(*) FROM samples s JOIN reviews r USING (uid, caption_index) RIGHT JOIN samples t USING (uid)",
        "SELECT kind, approx_quantile(similarity, 0.5) FROM samples GROUP BY ALL ORDER BY 1",
        "SELECT * FROM range(3)",
        "SELECT unnest([1, 2])",
        "SELECT row_number() OVER (ORDER BY similarity) FROM samples LIMIT 3",
        "DESCRIBE samples",
        "SUMMARIZE SELECT similarity FROM samples",
        "SELECT * FROM samples WHERE caption LIKE '%a%' AND lower(key) <> 'x' AND regexp_matches(caption, '[a-z]+')",
        "SELECT left(shard, 50) || '/' || left(key, 100) AS place, CAST(topic AS VARCHAR) FROM samples LIMIT 1",
        "SELECT count(*) FROM samples WHERE levenshtein(left(caption, 200), left(key, 200)) > 3",
        "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t WHERE x < 5) SELECT max(x) FROM t",
        "WITH a AS (SELECT key FROM samples), b AS (SELECT * FROM a) SELECT * FROM b WHERE key IN (FROM a SELECT key)",
        "SELECT median(similarity), quantile_cont(similarity, [0.1, 0.9]), count(DISTINCT key) FROM samples",
        "SELECT kind, count(*) FILTER (WHERE similarity > 0.2) FROM samples GROUP BY kind HAVING count(*) > 0",
        "SELECT CASE WHEN topic > 3 THEN 'many' ELSE 'few' END, coalesce(topic, 0) BETWEEN 1 AND 3 FROM samples",
        "SELECT 'read_text(' AS words, \"key\" FROM samples LIMIT 1",
        "VALUES (1), (2)",
        "SELECT (SELECT max(similarity) FROM samples) AS top, similarity FROM samples ORDER BY top",
        doubled("SELECT * FROM {} p, {} q", times=4),
        "SELECT similarity AS a, a + a AS b, b * a AS c, c > b AS d FROM samples ORDER BY d",
        "SELECT kind, topic, count(*) FROM samples GROUP BY CUBE (kind, topic)",
        "SELECT count(*) FROM samples WHERE key IN (" + ", ".join(f"'{i:09d}'" for i in range(7000)) + ")",
    ],
)
def test_ordinary_queries_run(audit: Audit, sql: str) -> None:
    assert audit.sql(sql).num_rows >= 1
    assert audit.sql(sql, limit=1).num_rows == 1


@pytest.mark.parametrize(
    "condition",
    [
        "TRUE) OR (TRUE",
        "TRUE, FALSE) OR coalesce(TRUE",
        "TRUE, TRUE",
        "TRUE, FALSE) = coalesce(TRUE",
        "TRUE) UNION SELECT 1 FROM samples WHERE (TRUE",
        "TRUE) GROUP BY (1",
        "TRUE) ORDER BY (1",
        "TRUE) LIMIT (1",
        "TRUE) HAVING (TRUE",
        "TRUE) QUALIFY (TRUE",
        "TRUE); DROP VIEW samples; SELECT (1",
        "TRUE) --",
        "TRUE) /*",
        "1 = 1 /*",
        "(TRUE",
        "TRUE)",
        "key IN (SELECT content FROM read_text('/etc/passwd'))",
        "EXISTS (FROM glob('/etc/*'))",
        "getenv('HOME') = 'x'",
        "similarity > 0.2 AND",
        "SELECT 1",
        "'unclosed",
    ],
)
def test_conditions_cannot_break_out(audit: Audit, condition: str) -> None:
    with pytest.raises(QueryError):
        audit.count(condition)


def test_condition_keeps_its_brackets(audit: Audit) -> None:
    assert audit.count("kind = 'image' OR kind = 'video' -- a remark") == 300
    with_and = audit.database.where("FALSE OR TRUE")
    assert audit.database.rows(f"SELECT count(*) AS n FROM samples WHERE FALSE AND {with_and}")[0]["n"] == 0


def test_time_limit(audit: Audit) -> None:
    with Audit(audit.path, limits=Limits(seconds=0.3)) as hurried:
        with pytest.raises(QueryError, match=r"stopped after 0\.3 s"):
            hurried.sql("WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT max(x) FROM t")
        assert hurried.sql("SELECT 1 AS one")["one"].to_pylist() == [1]


def test_memory_limit(audit: Audit) -> None:
    with Audit(audit.path, limits=Limits(memory="100MB")) as small, pytest.raises(QueryError, match="100MB of memory"):
        small.sql("SELECT count(DISTINCT range) FROM range(100000000)")


HEAVY = [
    "SELECT string_agg(a.caption || b.caption || c.caption, '') FROM samples a, samples b, samples c",
    "SELECT list(repeat(a.caption, 1000)) FROM samples a, samples b",
    "SELECT repeat('x', 3000000000)",
    "SELECT median(a.similarity + b.similarity) FROM samples a, samples b, samples c, samples d",
    "SELECT a.*, b.*, c.* FROM samples a, samples b, samples c",
    "SELECT max(a.caption) OVER (PARTITION BY b.key) FROM samples a, samples b, samples c",
    "SELECT count(*) FROM range(1000000000000) WHERE regexp_matches(range::VARCHAR, '(.{1,999}[0-9]{1,999})$')",
    "SELECT " + ", ".join(["a.caption"] * 300) + " FROM samples a, samples b",
]


def test_memory_and_time_are_limited(audit: Audit) -> None:
    """In a process of its own, whose peak is measured: 200 MB for a query and 200 MB for its result are allowed."""
    script = (
        "import json, resource, sys, time\n"
        "from auditor.python_api import Audit\n"
        "from auditor.query.sandbox import Limits, QueryError\n"
        "audit = Audit(sys.argv[1], limits=Limits('200MB', 1.0))\n"
        "peak = lambda who: resource.getrusage(who).ru_maxrss\n"
        "before, seconds = peak(resource.RUSAGE_SELF), []\n"
        "for sql in json.loads(sys.argv[2]):\n"
        "    start = time.monotonic()\n"
        "    try: audit.sql(sql)\n"
        "    except QueryError: seconds.append(time.monotonic() - start)\n"
        "audit.close()\n"
        "print(json.dumps([peak(resource.RUSAGE_SELF) - before, peak(resource.RUSAGE_CHILDREN), seconds]))\n"
    )
    command = [sys.executable, "-c", script, audit.path, json.dumps(HEAVY)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    parent_growth, child_peak, seconds = json.loads(run.stdout)
    assert parent_growth < 100_000 and child_peak < 1_200_000
    assert len(seconds) == len(HEAVY) and max(seconds) < 60  # one second, if the machine is idle


def test_broken_sql_has_duckdbs_message(audit: Audit) -> None:
    with pytest.raises(QueryError, match=r'^Parser Error: syntax error at or near "selec"$'):
        audit.sql("selec 1")
    with pytest.raises(QueryError, match='"similarity"'):
        audit.sql("SELECT simlarity FROM samples")


def test_too_long_and_too_deep(audit: Audit) -> None:
    with pytest.raises(QueryError, match="too long"):
        audit.sql("SELECT 1" + " " * 200_000)
    with pytest.raises(QueryError):
        audit.count("(" * 20_000 + "TRUE" + ")" * 20_000)


def test_undecodable_bytes_are_one_line(audit: Audit, tmp_path: Path) -> None:
    for ask in (lambda: audit.sql("SELECT 'caf\udce9'"), lambda: audit.count("key = 'caf\udce9'")):
        with pytest.raises(QueryError, match="UTF-8"):
            ask()
    with pytest.raises(QueryError, match="not in UTF-8"):
        audit.keep().write(tmp_path / "caf\udce9" / "kept.parquet")


def test_literals_are_inert() -> None:
    database = Sandbox([])
    for value in ["it's", "'; DROP TABLE x; --", "\\'", "\N{SNOWMAN}", 'a"b', 0.1, 1e-300, 7, True, None, ["a", "'"]]:
        assert database.rows(f"SELECT {quote_literal(value)} AS v")[0]["v"] == value


def test_threads_share_a_database(audit: Audit) -> None:
    found: list[int] = []
    workers = [threading.Thread(target=lambda: found.append(audit.count("similarity > -1"))) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(set(found)) == 1 and len(found) == 8


def test_an_audit_that_is_open_at_exit_leaves_no_lines_on_the_terminal(tmp_path: Path) -> None:
    path = write_audit(tmp_path / "audit", 200, 100)
    script = f"from auditor.python_api import Audit\naudit = Audit({str(path)!r})\nprint(audit.count())"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stdout.strip(), run.stderr) == (0, "200", "")


def test_settings_hold_in_every_session(audit: Audit) -> None:
    settings = "current_setting('parquet_metadata_cache') AS a, NOT current_setting('python_enable_replacements') AS b"
    assert audit.database.sandbox.rows(f"SELECT {settings}") == [{"a": True, "b": True}]
