# Everything a person types here. Needs Python 3.11 or newer and nothing else; uses uv where it is installed.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: help demo test check bench long mutants figures clean

help:  ## what there is
	@sed -n 's/^\([a-z]*\):[^#]*## /  make \1   /p' Makefile

demo:  ## a real model on this machine answers with real tool calls, live (first time: about a minute)
	@$(PYTHON) scripts/setup.py demo
	@$(BIN)/callgate demo

test:  ## all tests
	@$(PYTHON) scripts/setup.py dev
	@$(BIN)/pytest -n 2

check:  ## what CI runs: format, lint, types, import contracts, tests, docs, wheel
	@$(PYTHON) scripts/setup.py dev
	@$(BIN)/python scripts/check

bench:  ## the benchmarks beside other packages, one table each (first time: about two minutes; then ten)
	@$(PYTHON) scripts/setup.py bench
	@.venv-bench/bin/python bench/all.py

long:  ## soaks, kill campaigns and fuzzing, far beyond what CI runs (about half an hour)
	@$(PYTHON) scripts/setup.py dev
	@CALLGATE_FUZZ=300 CALLGATE_CRASHES=300 $(BIN)/pytest -n 2 --timeout 1200 tests/test_dialects_laws.py tests/test_crash.py tests/test_ledger_postgres.py tests/attacks tests/test_gateway_ways.py
	@CALLGATE_SOAK=5000 $(BIN)/pytest -s tests/test_soak.py
	@CALLGATE_FORCED=all $(BIN)/pytest --timeout 1200 tests/test_forced_model.py tests/test_gateway_forced.py

mutants:  ## small faults are put into the code; the tests must notice (hours)
	@$(PYTHON) scripts/setup.py dev
	@$(BIN)/python scripts/mutants.py

figures:  ## the figures of the code beside well-kept packages
	@$(PYTHON) scripts/setup.py dev
	@$(BIN)/python scripts/figures.py --peers

clean:  ## forget the environment and all caches of this folder
	rm -rf .venv .venv-bench .compat build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
