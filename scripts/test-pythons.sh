#!/usr/bin/env bash
# Runs the suite on every other Python that the project promises and that is here, each in an environment of its own.
# Looks on the PATH and among pyenv's versions; says which were not found.
# The slow tests run on one Python only: they are about processes, other programs and long rounds.
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
  ".venv-$version/bin/python" -m pytest -q -n auto --dist worksteal -m "not slow"
done
