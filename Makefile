PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -q -c constraints.txt

.PHONY: demo test lint format bench clean

demo: .venv/core
	@$(BIN)/diffinity demo

test: .venv/dev
	$(BIN)/python -m pytest

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/bench
	@for script in $(filter-out %/__init__.py %/automata.py,$(wildcard benchmarks/*.py)); do echo "== $$script"; $(BIN)/python -m $$(echo $${script%.py} | tr / .) || exit 1; done

clean:
	rm -rf .venv

.venv/core: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) -e .
	@touch $@

.venv/bench: .venv/dev
	$(PIP) -e '.[bench]'
	@touch $@

.venv/dev: .venv/core
	$(PIP) -e '.[dev,train]'
	@touch $@
