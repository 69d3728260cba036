#!/usr/bin/env bash
# Runs `pydantic-deep acp` by the agent class of Harbor, which runs agents in benchmarks. Harbor needs Python 3.12 and
# packages that conflict with ours, so it has an environment of its own, .venv-harbor.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! python=$(bash scripts/find-python.sh 3.12); then
  echo "Python 3.12 is not installed; Harbor was not run." >&2
  exit 1
fi
[ -x .venv-harbor/bin/harbor ] || {
  "$python" -m venv .venv-harbor
  .venv-harbor/bin/python -m pip install -qq --disable-pip-version-check harbor==0.24.0
}
.venv-harbor/bin/python tests/harbor/drive.py
