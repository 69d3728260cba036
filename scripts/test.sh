#!/usr/bin/env bash
# Runs the tests on all cores. Where COVERAGE is set, it measures what they cover, for scripts/coverage.sh.
# Without bubblewrap and Chromium, the tests that need them are skipped, and say so.
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
exec .venv/bin/python "${measure[@]}" -m pytest -q -n auto --dist worksteal "$@"
