#!/usr/bin/env bash
# Runs the tests in one process more than there are cores, since tests also wait: for files, servers and other processes.
# If COVERAGE is set, their coverage is measured for scripts/coverage.sh.
# Without bubblewrap and Chromium, the tests that need them are skipped with a message.
# WORKERS overrides the number of processes.
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
exec .venv/bin/python "${measure[@]}" -m pytest -q -n "${WORKERS:-$(($(getconf _NPROCESSORS_ONLN) + 1))}" --dist worksteal "$@"
