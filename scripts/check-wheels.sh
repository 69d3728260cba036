#!/usr/bin/env bash
# Installs the built wheels into an environment of their own and imports every public module from there.
set -euo pipefail
cd "$(dirname "$0")/.."
env=$(mktemp -d)/venv
trap 'rm -rf "$(dirname "$env")"' EXIT
.venv/bin/python -m venv "$env"
install() { "$env/bin/python" -m pip install -qq --disable-pip-version-check --constraint constraints.txt "$@"; }

install dist/pydantic_deep_backends-*.whl
(cd / && "$env/bin/python" -c '
import sys, pydantic_deep_backends
sys.exit("the backends drag in agents" if {"pydantic", "pydantic_ai", "pydantic_deep"} & set(sys.modules) else 0)')
(cd / && "$env/bin/python" -c '
from pydantic_deep_backends.sandbox._perl import read_program
read_program("init.pl"), read_program("isolation_probe.pl")')
echo "the backends work alone"

install dist/pydantic_deep_backends-*.whl "$(ls "$PWD"/dist/pydantic_deep-*.whl)"
(cd / && "$env/bin/python" -c 'import pydantic_deep; pydantic_deep.create_deep_agent("test")')
echo "pydantic_deep works without extras"

install "$(ls "$PWD"/dist/pydantic_deep-*.whl)[all]" pytest
(cd / && "$env/bin/python" - <<'PY'
import importlib, pkgutil
import pydantic_deep, pydantic_deep_backends

names = []
for package in (pydantic_deep, pydantic_deep_backends):
    for module in pkgutil.walk_packages(package.__path__, f'{package.__name__}.'):
        if '._' not in module.name and not module.name.endswith('__main__'):
            importlib.import_module(module.name)
            names.append(module.name)
print(f'{len(names)} public modules import: {", ".join(names)}')
PY
)
(cd / && "$env/bin/pydantic-deep" --help >/dev/null)
echo "the command starts"
