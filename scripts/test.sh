#!/usr/bin/env bash
# Runs the suite on all cores and holds it to full coverage of lines and branches.
set -euo pipefail
cd "$(dirname "$0")/.."
export COVERAGE_PROCESS_START=pyproject.toml
rm -f .coverage .coverage.*
.venv/bin/python -m coverage run -m pytest -q -n auto "$@"
.venv/bin/python -m coverage combine --quiet
.venv/bin/python -m coverage report
