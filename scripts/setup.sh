#!/usr/bin/env bash
# Creates a virtual environment with the project, editable, and all tools, at the versions of constraints.txt.
# Installs packages with uv, which it installs if it is missing, or with pip if uv fails.
# usage: setup.sh PYTHON DIR CONSTRAINTS
set -euo pipefail
python=$1 dir=$2 constraints=$3
cd "$(dirname "$0")/.."

if ! "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null; then
  echo "Python 3.11, 3.12, 3.13 or 3.14 is needed; \`$python\` is $("$python" --version 2>/dev/null || echo missing). Set it: make PYTHON=python3.12 …" >&2
  exit 1
fi
echo "Setting up $dir, once; this takes about a minute …" >&2
requirements=$(mktemp)
trap 'rm -f "$requirements"' EXIT
"$python" scripts/requirements.py > "$requirements"
[ -x "$dir/bin/python" ] || "$python" -m venv "$dir"
install=(--constraint "$constraints" -e '.[all]' -r "$requirements")
uv=$(command -v uv || true)
if [ -z "$uv" ]; then
  "$dir/bin/python" -m pip install -qq --disable-pip-version-check --constraint constraints.txt uv && uv=$dir/bin/uv
fi
# uv does not read the configuration of pip. If it therefore misses a package index, pip installs the packages, which takes
# a minute longer.
{ [ -n "$uv" ] && "$uv" pip install --quiet --python "$dir/bin/python" "${install[@]}"; } ||
  "$dir/bin/python" -m pip install -qq --disable-pip-version-check "${install[@]}"
