# Two commands: `make demo` shows the toolkit at work, `make test` checks it. Each makes its own environment.
# .ci/run adds `make durability` (commands killed, stopped and fed hostile input), `make browser` (pages in Chromium)
# and `make slow` (further and longer cases of many tests).
# `make docs` writes the reference pages of commands and configuration keys from the sources, and builds the site.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
STAMP = $(VENV)/.installed
# The part of the slow tests that `make slow` runs: 1/4 is the second quarter, 0/1 all.
PART ?= 0/1

PYTEST = OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadscope --no-loadscope-reorder

# Many tests start processes: with bytecode kept, importing torch takes half the time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test lint types unit durability browser slow docs clean

$(STAMP): pyproject.toml constraints.txt
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@echo "installing attnkit and what it needs into $(VENV)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[test,docs]'
	@touch $(STAMP)

demo: $(STAMP)
	@$(BIN)/attnkit demo

test: lint
	@$(MAKE) --no-print-directory -j2 types unit

lint: $(STAMP)
	$(BIN)/ruff check src tests benchmarks examples docs
	$(BIN)/ruff format --check src tests benchmarks examples docs

types: $(STAMP)
	$(BIN)/mypy

unit: $(STAMP)
	$(PYTEST) --ignore=tests/durability --ignore=tests/browser

durability: $(STAMP)
	$(PYTEST) tests/durability

browser: $(STAMP)
	$(BIN)/pytest tests/browser

slow: $(STAMP)
	$(PYTEST) -m slow --part $(PART)

docs: $(STAMP)
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/build_site.py

clean:
	rm -rf $(VENV) demo-run build dist .pytest_cache .mypy_cache .ruff_cache
