PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -q -c constraints.txt

.PHONY: demo test lint format bench embedded clean

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

# The embedded models, from nothing: many hours on one core; the same command goes on where it was stopped.
RUNS ?= runs
embedded: .venv/dev
	$(BIN)/diffinity train --out $(RUNS)/plaid --threads 1
	$(BIN)/diffinity train --kind autoregressive --out $(RUNS)/autoregressive --tokenizer $(RUNS)/plaid/tokenizer.json --batch-tokens 2048 --steps 4500 --cooldown 1500 --threads 1
	$(BIN)/diffinity train --kind masked --out $(RUNS)/masked --tokenizer $(RUNS)/plaid/tokenizer.json --batch-tokens 2048 --steps 3500 --cooldown 1200 --threads 1
	$(BIN)/python -m diffinity.training.release $(RUNS)

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
