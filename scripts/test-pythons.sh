#!/usr/bin/env bash
# Runs the suite on every other Python that the project promises and that is here, each in an environment of its own.
# Looks on the PATH and among pyenv's versions; says which were not found.
# The slow tests run on one Python only: they are about processes, other programs and long rounds.
# usage: test-pythons.sh [VERSION…]
set -euo pipefail
cd "$(dirname "$0")/.."
ours=$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
[ $# -gt 0 ] || set -- 3.11 3.12 3.13 3.14
for version in "$@"; do
  [ "$version" != "$ours" ] || continue
  if ! python=$(bash scripts/find-python.sh "$version"); then
    echo "Python $version is not here; the suite was not run on it."
    continue
  fi
  bash scripts/setup.sh "$python" ".venv-$version" constraints.txt
  ".venv-$version/bin/python" --version
  ".venv-$version/bin/python" -m pytest -q -n auto --dist worksteal -m "not slow"
done
