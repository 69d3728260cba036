# Every target sets up what it needs: a virtual environment in .venv, made once. Python 3.11 or newer is enough.
.DEFAULT_GOAL := help
.PHONY: help demo test test-slow coverage check format lint types imports licences docs docs-serve test-newest test-pythons test-js soak bench lab build clean

# Suites import much in many processes: what is compiled once starts twice as fast, wherever Python is told to keep nothing.
unexport PYTHONDONTWRITEBYTECODE

# The first Python of a version that will do; set it to choose another: make PYTHON=python3.13 test
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null && echo $$p && exit; done; echo python3)
V := .venv/bin
READY := .venv/.ready

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-12s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt scripts/setup.sh
	@bash scripts/setup.sh "$(PYTHON)" .venv constraints.txt
	@touch $@

demo: $(READY)  ## Watch the agent do its main job on real files
	@$(V)/python examples/demo.py $(ARGS)

test: $(READY)  ## Run the tests, without the slow ones; make test ARGS=tests/todos runs some
	@bash scripts/test.sh -m "not slow" $(ARGS)

test-slow: $(READY)  ## Run the slow tests: rounds of kills, floods, Chromium, other servers
	@bash scripts/test.sh -m slow $(ARGS)

coverage: export COVERAGE = 1
coverage: $(READY)  ## Run all tests, and require that they cover every line and branch
	@bash scripts/coverage.sh erase
	@bash scripts/test.sh -m "not slow"
	@bash scripts/test.sh -m slow
	@bash scripts/coverage.sh report

check: lint types imports licences docs coverage  ## Run everything that must pass on one Python

format: $(READY)  ## Format the code, and fix what ruff can fix
	$(V)/ruff format .
	$(V)/ruff check --fix .

lint: $(READY)  ## Check style and format
	$(V)/ruff check .
	$(V)/ruff format --check .
	for program in backends/pydantic_deep_backends/sandbox/*.pl; do perl -Mstrict -wc $$program || exit; done

types: $(READY)  ## Check types: pyright everywhere, mypy on what users write
	$(V)/pyright
	$(V)/mypy

imports: $(READY)  ## Check that imports point down
	$(V)/lint-imports

licences: $(READY)  ## Check that nothing installed at run time is under a copyleft licence
	$(V)/python scripts/check_licences.py

docs: $(READY)  ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(V)/mkdocs build --strict

docs-serve: $(READY)  ## Serve the documentation on loopback
	$(V)/mkdocs serve

test-newest:  ## Run the tests on the newest pydantic-ai, without its harness
	@bash scripts/test-newest.sh "$(PYTHON)" $(ARGS)

test-pythons: $(READY)  ## Run the tests on the other Pythons that are here; ARGS=3.13 on one
	@bash scripts/test-pythons.sh $(ARGS)

test-js: $(READY)  ## Let JavaScript clients talk to the server; needs Node.js and npm
	@bash scripts/test-js.sh

soak: $(READY)  ## Run the long form of the races and floods
	SOAK_ROUNDS=10000 $(V)/python -m pytest -m "soak or hypothesis"

bench: $(READY)  ## Measure beside bare pydantic-ai and the peers, and print the table
	$(V)/python benchmarks/run.py $(ARGS)

lab: $(READY)  ## Let agents solve tasks with a real model: benchmarks/lab/README.md
	@$(V)/python -m benchmarks.lab $(ARGS)

build: $(READY)  ## Build both wheels into dist/
	rm -rf dist && $(V)/python -m build --quiet --outdir dist backends && $(V)/python -m build --quiet --outdir dist .

clean:  ## Remove everything that was made
	rm -rf .venv .venv-* tests/js/node_modules .cache site dist .coverage .coverage.* .pytest_cache .ruff_cache .mypy_cache .hypothesis
