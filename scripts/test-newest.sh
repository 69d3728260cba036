#!/usr/bin/env bash
# Runs the tests that are not slow on the newest release of pydantic-ai, in .venv-newest, without the harness, which pins
# an older release. Arguments select tests; without arguments all of them run.
# usage: test-newest.sh PYTHON [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
constraints=.venv-newest.txt
# The packages that pydantic-ai requires are not pinned either, because its newest release may need other versions.
grep -vE '^(pydantic-ai|pydantic-graph|pydantic-evals|anthropic|openai|google-genai|genai-prices|ag-ui-protocol)' constraints.txt > "$constraints"
trap 'rm -f "$constraints"' EXIT
SKIP_GROUPS=harness,lint,docs,build bash scripts/setup.sh "$1" .venv-newest "$constraints"
# pydantic-evals requires its own version of pydantic-ai, so without its newest release an older pydantic-ai is chosen.
.venv-newest/bin/python -m pip install -qq --disable-pip-version-check --upgrade --no-deps pydantic-ai-slim pydantic-graph
shift
.venv-newest/bin/python -c 'import importlib.metadata as m, platform; print("Python", platform.python_version(), "and pydantic-ai-slim", m.version("pydantic-ai-slim"))'
.venv-newest/bin/python -m pytest -q -n $(($(getconf _NPROCESSORS_ONLN) + 1)) --dist worksteal -m "not slow" "$@"
