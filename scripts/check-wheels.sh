#!/usr/bin/env bash
# Checks the metadata of the built distributions, then installs the wheels into a new environment, and uses them there
# with an empty home directory.
set -euo pipefail
cd "$(dirname "$0")/.."
place=$(mktemp -d)
env=$place/venv
mkdir "$place/home"
trap 'rm -rf "$place"' EXIT
.venv/bin/python -m venv "$env"
install() { "$env/bin/python" -m pip install -qq --disable-pip-version-check --constraint constraints.txt "$@"; }
run() { (cd "$place/home" && env -i HOME="$place/home" PATH="$env/bin:/usr/bin:/bin" "$@"); }

# `twine check` would render texts in reStructuredText, and ours are Markdown. hatchling has checked the classifiers.
.venv/bin/python - <<'PY'
from pathlib import Path
from zipfile import Path as ZipPath

from packaging.metadata import Metadata

wheels = sorted(Path('dist').glob('*.whl'))
for wheel in wheels:
    stem = wheel.name.removesuffix('-py3-none-any.whl')
    text = ZipPath(wheel, f'{stem}.dist-info/METADATA').read_text(encoding='utf-8')
    assert Metadata.from_email(text, validate=True).description_content_type == 'text/markdown'
    assert wheel.with_name(f'{stem}.tar.gz').exists()
print('the metadata is valid:', *(wheel.name for wheel in wheels))
PY

install dist/pydantic_deep_backends-*.whl
run python -c '
import sys, pydantic_deep_backends
sys.exit("the backends import agents" if {"pydantic", "pydantic_ai", "pydantic_deep"} & set(sys.modules) else 0)'
run python -c '
from pydantic_deep_backends.sandbox._perl import read_program
read_program("init.pl"), read_program("isolation_probe.pl")'
"$env/bin/python" -m pip uninstall -qq --yes pydantic-deep-backends
echo "the backends work alone"

install "$(ls "$PWD"/dist/versioned_deep_agents-*.whl)"
run python -c 'import pydantic_deep; pydantic_deep.create_deep_agent("test")'
run python -c '
import json
from importlib.resources import files
from pydantic_deep_backends.sandbox._perl import read_program
read_program("init.pl"), read_program("isolation_probe.pl")
for name in ("events", "views"):
    json.loads(files("pydantic_deep").joinpath(f"schemas/{name}.json").read_text())
files("pydantic_deep").joinpath("audit/token_shapes.tsv").read_text()'
echo "pydantic_deep works without extras"

message=$(run pydantic-deep --help 2>&1) && { echo "the command works without its extra" >&2; exit 1; }
eval "install ${message##*pip install }"
run pydantic-deep --help >/dev/null
echo "the command names the extra that it needs, and starts with it"

# Without a key, the model is pydantic-ai's test model, which calls every tool.
awk '/^```$/ && on { exit } on; /^```python$/ { on = 1 }' README.md | sed "s/'anthropic:[^']*'/'test'/" >"$place/home/first.py"
grep -q "create_deep_agent('test'" "$place/home/first.py"
run python first.py >/dev/null
echo "the README's first example runs"

install "$(ls "$PWD"/dist/versioned_deep_agents-*.whl)[all]" pytest
run env ANTHROPIC_API_KEY=x GOOGLE_API_KEY=x OPENAI_API_KEY=x python - <<'PY'
import logfire
from pydantic_deep import create_deep_agent

for model in ('anthropic:claude-opus-5-5', 'google:gemini-3-pro', 'openai:gpt-5.2'):
    create_deep_agent(model)
PY
echo "the extras of providers are complete"
run python - <<'PY'
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

# `pyright` finds the packages by the `python` of the path. Other type checkers infer less, so every type is written.
pyright=$PWD/.venv/bin/pyright
for package in pydantic_deep pydantic_deep_backends; do
  report=$(cd "$place/home" && PATH="$env/bin:$PATH" "$pyright" --verifytypes "$package" --ignoreexternal) || { echo "$report"; exit 1; }
done
echo "all types of the public interface are known"
