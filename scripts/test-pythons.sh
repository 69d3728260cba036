#!/usr/bin/env bash
# Runs the suite on every other Python that the project promises and that is here, each in an environment of its own.
# Looks on the PATH and among pyenv's versions; says which were not found.
# Left out: what only repeats, slowly, what `make test` has shown on one Python of other programs: Iceberg's files,
# the page in Chromium, generated requests, servers that are killed, the official clients, and the benchmarks.
set -euo pipefail
cd "$(dirname "$0")/.."
ours=$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
for version in 3.11 3.12 3.13; do
  [ "$version" != "$ours" ] || continue
  found=
  for python in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python; do
    if "$python" -c '' 2>/dev/null; then found=$python; break; fi
  done
  if [ -z "$found" ]; then
    echo "Python $version is not here; the suite was not run on it."
    continue
  fi
  bash scripts/setup.sh "$found" ".venv-$version" constraints.txt
  ".venv-$version/bin/python" --version
  ".venv-$version/bin/python" -m pytest -q -n auto --ignore=tests/repository/test_iceberg.py \
    --ignore=tests/server/test_page.py --ignore=tests/server/test_schema.py \
    --ignore=tests/server/test_chaos.py --ignore=tests/server/test_wire_sdks.py --ignore=tests/test_benchmarks.py
done
