# Every target first creates the virtual environment .venv if it is missing. It needs Python 3.11 or newer.
.DEFAULT_GOAL := help
.PHONY: help demo test test-slow coverage check format lint types imports licences docs docs-serve test-newest test-pythons test-js test-clients test-harbor web soak bench lab agentdojo build wheels clean

# The tests import many modules in many processes, which start twice as fast if compiled modules are cached. Some
# environments turn the cache off.
unexport PYTHONDONTWRITEBYTECODE

# The first Python of a supported version. To choose another: make PYTHON=python3.13 test
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null && echo $$p && exit; done; echo python3)
V := .venv/bin
READY := .venv/.ready

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-12s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt scripts/setup.sh
	@bash scripts/setup.sh "$(PYTHON)" .venv constraints.txt
	@touch $@

demo: $(READY)  ## Show an agent that surveys real files and writes a report
	@$(V)/python examples/demo.py $(ARGS)

test: $(READY)  ## Run the tests, without the slow ones; make test ARGS=tests/todos runs some
	@bash scripts/test.sh -m "not slow" $(ARGS)

test-slow: $(READY)  ## Run the slow tests: repeated kills, many requests, Chromium, other servers
	@bash scripts/test.sh -m slow $(ARGS)

coverage: export COVERAGE = 1
coverage: $(READY)  ## Run all tests, and require that they cover every line and branch
	@bash scripts/coverage.sh erase
	@bash scripts/test.sh
	@bash scripts/coverage.sh report

check: lint types imports licences docs coverage  ## Run everything that must pass on one Python

format: $(READY)  ## Format the code, and fix what ruff can fix
	$(V)/ruff format .
	$(V)/ruff check --fix .

lint: $(READY)  ## Check style and format
	$(V)/ruff check .
	$(V)/ruff format --check .
	for program in backends/pydantic_deep_backends/sandbox/*.pl; do perl -Mstrict -wc $$program || exit; done

types: $(READY)  ## Check types: pyright everywhere, mypy for typical code of users
	$(V)/pyright
	$(V)/mypy

imports: $(READY)  ## Check that packages import only from lower layers
	$(V)/lint-imports

licences: $(READY)  ## Check that no runtime dependency has a copyleft licence
	$(V)/python scripts/check_licences.py

docs: $(READY)  ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(V)/mkdocs build --strict

docs-serve: $(READY)  ## Serve the documentation on loopback
	$(V)/mkdocs serve

test-newest:  ## Run the tests with the newest pydantic-ai, without its harness
	@bash scripts/test-newest.sh "$(PYTHON)" $(ARGS)

test-pythons: $(READY)  ## Run the tests on the other installed Pythons; ARGS=3.13 selects one
	@bash scripts/test-pythons.sh $(ARGS)

web: $(READY)  ## Build the web page from web/ into pydantic_deep/server/static
	@bash scripts/build-page.sh

test-js: $(READY)  ## Test the server and the agent of editors with JavaScript clients, and that the page is up to date
	@bash scripts/build-page.sh --check
	@bash scripts/test-js.sh

test-clients: $(READY)  ## Run the quick starts of other Python clients, such as the OpenAI Agents SDK, against the server
	@bash scripts/test-clients.sh $(ARGS)

test-harbor: $(READY)  ## Run the agent of editors by Harbor's client; needs Python 3.12
	@bash scripts/test-harbor.sh

soak: $(READY)  ## Run the tests of races and of many requests for a long time
	SOAK_ROUNDS=10000 $(V)/python -m pytest -m "soak or hypothesis"

bench: $(READY)  ## Compare with bare pydantic-ai and the peers, and print the tables
	$(V)/python benchmarks/run.py $(ARGS)

lab: $(READY)  ## Let agents solve tasks with a real model: benchmarks/lab/README.md
	@$(V)/python -m benchmarks.lab $(ARGS)

agentdojo: $(READY)  ## Count the harmful calls that run if a model obeys every injection of AgentDojo
	@$(V)/python -m benchmarks.agentdojo

build: $(READY)  ## Build both distributions into dist/: each sdist, and from it the wheel
	rm -rf dist && $(V)/python -m build --quiet --outdir dist backends && $(V)/python -m build --quiet --outdir dist .

wheels: build  ## Build both distributions, and install and use them in empty environments
	@bash scripts/check-wheels.sh

clean:  ## Remove everything that the other targets created
	rm -rf .venv .venv-* tests/js/node_modules web/node_modules .cache site dist .coverage .coverage.* .pytest_cache .ruff_cache .mypy_cache .hypothesis
