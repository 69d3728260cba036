#!/usr/bin/env bash
# Prints the path of a Python of the given version, from the PATH or from pyenv; fails if there is none.
# usage: find-python.sh 3.12
for python in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
  if "$python" -c '' 2>/dev/null; then
    echo "$python"
    exit 0
  fi
done
exit 1
