#!/usr/bin/env bash
# Prints the path of a Python of a version, from the PATH, from pyenv's or from install-python.sh; fails if there is none.
# usage: find-python.sh 3.12
here=$(cd "$(dirname "$0")/.." && pwd)
for python in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python "$here/.cache/python-$1/usr/bin/python$1"; do
  if "$python" -c '' 2>/dev/null; then
    echo "$python"
    exit 0
  fi
done
exit 1
