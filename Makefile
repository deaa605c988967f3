# Every target builds .venv itself; only Python 3.11 or later is needed.
PYTHON ?= python3
BIN := .venv/bin
# One more than two cores: some tests wait for a browser or for a process to start.
WORKERS ?= 3
SOURCES := auditor model dashboard jobs docs examples tests
# With it set, each process would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-fast test-cluster lint style types pytest dashboard docs bench install browser clean

help:
	@echo "make demo       generate a corpus with known defects, train a small model, audit it, write a report"
	@echo "make dashboard  browse the demo's audit"
	@echo "make docs       build the documentation as a site in site/, with the demo's report if make demo was run"
	@echo "make test       ruff, mypy --strict and all tests; first installs .venv and, as root, Chromium (WORKERS=3)"
	@echo "make test-fast  the fast tests alone: no browser, no Ray, no training; under 90 seconds"
	@echo "make test-cluster  the tests that start several raylets"
	@echo "make bench      measure every figure of docs/results.md"

install: .venv/.installed

.venv/.installed: pyproject.toml constraints.txt
	@echo "Installing Python packages into .venv (torch, open_clip, ray, streamlit and what they need: several GB)"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[all,dev]'
	touch $@

demo: install
	$(BIN)/auditor demo --out demo

demo/audit/manifest.json:
	$(MAKE) demo

dashboard: install demo/audit/manifest.json
	$(BIN)/auditor dashboard demo/audit

# Open site/index.html; it needs neither a server nor the network.
docs: install
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

lint: style types

style: install
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

types: install
	$(BIN)/mypy

# The browser tests drive a real Chromium. They are skipped if there is none and none can be installed.
browser:
	@command -v chromium chromium-browser google-chrome >/dev/null 2>&1 \
	  || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
	       && echo "Installing Chromium for the browser tests (apt-get install chromium)" \
	       && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } \
	  || echo "no Chromium here: the browser tests will be skipped"

# Each file runs in one worker, so its fixtures are built once (FileGroupScheduling in tests/conftest.py). A
# worker that dies ends the run and its test is named; pytest-xdist would start another one and wait for it forever.
PYTEST = $(BIN)/python -m pytest -q --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder \
  --max-worker-restart 0 $(PYTEST_OPTIONS)

# mypy runs beside the tests: alone it would leave a core idle for a minute.
test: install browser style
	$(MAKE) --no-print-directory --jobs 2 types pytest

pytest: install
	$(PYTEST) -m 'not cluster'

# The inner loop, without lint and without the files of tests/slow_files.txt.
test-fast: install
	$(PYTEST) -m 'not (cluster or browser or slow)'

# Several raylets, killed workers and nodes, jobs submitted to a real job server: takes minutes on an idle machine.
test-cluster: install
	$(BIN)/python -m pytest -q -m cluster

bench: install
	@set -e; for script in tests/bench/*.py; do \
	  name=$$(basename $$script .py); test $$name = __init__ && continue; \
	  echo "== $$name"; $(BIN)/python -m tests.bench.$$name; done

clean:
	rm -rf .venv demo site bench-results build *.egg-info .mypy_cache .ruff_cache .pytest_cache
