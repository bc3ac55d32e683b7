PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -q -c constraints.txt

.PHONY: demo serve test lint format docs release-check bench embedded clean

demo: .venv/core
	@$(BIN)/diffinity demo

serve: .venv/serve
	$(BIN)/diffinity serve

test: .venv/dev
	$(BIN)/python -m pytest

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/hadolint Dockerfile

# Programs that some tests use: a browser, and the grammar judge's parser and dictionaries. Needs Debian or Ubuntu, and root.
SYSTEM_PACKAGES = chromium link-grammar link-grammar-dictionaries-en hunspell hunspell-en-us hunspell-en-gb
.PHONY: system
system:
	@dpkg -s $(SYSTEM_PACKAGES) > /dev/null 2>&1 || (apt-get update -qq && apt-get install -y -qq $(SYSTEM_PACKAGES))

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The documentation site, in build/site; every warning is an error.
docs: .venv/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Builds and checks the wheel and the sdist, and uses the wheel in a fresh environment.
release-check: .venv/release
	$(BIN)/python scripts/release_check.py

bench: .venv/bench
	@for script in $(filter-out %/__init__.py %/automata.py,$(wildcard benchmarks/*.py)); do echo "== $$script"; $(BIN)/python -m $$(echo $${script%.py} | tr / .) || exit 1; done

# Trains the embedded models from scratch: many hours on one core; the same command resumes an interrupted run.
# CORPUS is the file that `diffinity corpus build` writes (docs/training.md).
RUNS ?= runs
CORPUS ?= corpus.jsonl
# On processors with bfloat16 units, TRAIN_OPTIONS=--bfloat16 is faster.
TRAIN = $(BIN)/diffinity train $(CORPUS) --batch-tokens 2048 --length 96 --threads 1 $(TRAIN_OPTIONS)
embedded: .venv/dev
	$(TRAIN) --out $(RUNS)/plaid --vocab-size 8192 --dim 160 --n-blocks 8 --n-heads 5 --mixed 0.3 --steps 100000 --cooldown 20000
	$(TRAIN) --out $(RUNS)/autoregressive --kind autoregressive --tokenizer $(RUNS)/plaid/tokenizer.json --steps 20000 --cooldown 6000
	$(TRAIN) --out $(RUNS)/masked --kind masked --tokenizer $(RUNS)/plaid/tokenizer.json --steps 100000 --cooldown 20000
	$(BIN)/python -m diffinity.training.release $(RUNS) $(CORPUS)

clean:
	rm -rf .venv

.venv/core: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) -e .
	@touch $@

.venv/serve: .venv/core
	$(PIP) -e '.[serve]'
	@touch $@

.venv/docs: .venv/core
	$(PIP) -e '.[docs]'
	@touch $@

.venv/release: .venv/core
	$(PIP) -e '.[release]'
	@touch $@

.venv/bench: .venv/dev
	$(PIP) -e '.[bench]'
	@touch $@

.venv/dev: .venv/core
	$(PIP) -e '.[dev,ray,serve,train]'
	@touch $@
