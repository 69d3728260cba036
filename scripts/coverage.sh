#!/usr/bin/env bash
# Requires full coverage of lines and branches in the measurements of scripts/test.sh.
# Without bubblewrap, the sandbox is not tested, and its files are omitted.
# usage: coverage.sh erase|report
set -euo pipefail
cd "$(dirname "$0")/.."
case "$1" in
erase) rm -f .coverage .coverage.* ;;
report)
  unmeasured=
  command -v bwrap >/dev/null || unmeasured='*/sandbox/*,*/commands/_execution.py,*/files/_mount_point.py'
  .venv/bin/python -m coverage combine --quiet
  .venv/bin/python -m coverage report ${unmeasured:+--omit="$unmeasured"}
  ;;
*) echo "usage: coverage.sh erase|report" >&2; exit 2 ;;
esac
