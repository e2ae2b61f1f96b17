# Everything a person types here. Needs Python 3.11 or newer and nothing else; uses uv where it is installed.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: help demo test check bench clean

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

bench:  ## the benchmarks, one table each
	@$(PYTHON) scripts/setup.py dev
	@for file in bench/[a-z]*.py; do echo "== $$file"; $(BIN)/python "$$file" || exit 1; done

clean:  ## forget the environment and all caches of this folder
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
