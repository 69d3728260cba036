#!/usr/bin/env bash
# Runs the tests on every other supported Python that is installed, each in its own environment.
# Searches the PATH and the versions of pyenv, and reports those that are missing.
# Slow tests run on one Python only, because they test processes, other programs and many repetitions.
# usage: test-pythons.sh [VERSION…]
set -euo pipefail
cd "$(dirname "$0")/.."
current=$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
[ $# -gt 0 ] || set -- 3.11 3.12 3.13 3.14
for version in "$@"; do
  [ "$version" != "$current" ] || continue
  if ! python=$(bash scripts/find-python.sh "$version"); then
    echo "Python $version is not installed; the tests were not run on it."
    continue
  fi
  bash scripts/setup.sh "$python" ".venv-$version" constraints.txt
  ".venv-$version/bin/python" --version
  ".venv-$version/bin/python" -m pytest -q -n $(($(getconf _NPROCESSORS_ONLN) + 1)) --dist worksteal -m "not slow"
done
