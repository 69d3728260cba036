#!/usr/bin/env bash
# Runs the tests on all cores. If COVERAGE is set, their coverage is measured for scripts/coverage.sh.
# Without bubblewrap and Chromium, the tests that need them are skipped with a message.
# WORKERS is the number of processes that run tests, by default one for each core.
# usage: test.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/install-bubblewrap.sh || true
bash scripts/install-chromium.sh || true
measure=()
if [ -n "${COVERAGE:-}" ]; then
  export COVERAGE_PROCESS_START=pyproject.toml
  measure=(-m coverage run)
fi
exec .venv/bin/python "${measure[@]}" -m pytest -q -n "${WORKERS:-auto}" --dist worksteal "$@"
