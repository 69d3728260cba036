#!/usr/bin/env bash
# Runs the suite on all cores and holds it to full coverage of lines and branches; without bubblewrap (see
# install-bubblewrap.sh), the sandbox is not tested and so not measured.
set -euo pipefail
cd "$(dirname "$0")/.."
export COVERAGE_PROCESS_START=pyproject.toml
rm -f .coverage .coverage.*
unmeasured=
bash scripts/install-bubblewrap.sh ||
  unmeasured='*/sandbox.py,*/_bwrap.py,*/_promises.py,*/_disk.py,*/_commands.py,*/_shown.py'
bash scripts/install-chromium.sh || true # it says itself what is not tested then
.venv/bin/python -m coverage run -m pytest -q -n auto "$@"
.venv/bin/python -m coverage combine --quiet
.venv/bin/python -m coverage report ${unmeasured:+--omit="$unmeasured"}
