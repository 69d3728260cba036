#!/usr/bin/env bash
# Runs what the quick starts of other people's Python clients show against the server over loopback: the OpenAI Agents SDK,
# instructor, LangChain, LiteLLM and `llm`. Some need other versions of the official SDKs than ours, so they are installed
# into .venv-clients. Arguments select modules of tests/clients.
set -euo pipefail
cd "$(dirname "$0")/.."
requirements=tests/clients/requirements.txt
if ! cmp -s "$requirements" .venv-clients/requirements.txt; then
  rm -rf .venv-clients
  .venv/bin/python -m venv .venv-clients
  uv=$(command -v uv || echo .venv/bin/uv)
  { [ -x "$uv" ] && "$uv" pip install --quiet --python .venv-clients/bin/python -r "$requirements"; } ||
    .venv-clients/bin/python -m pip install -qq --disable-pip-version-check -r "$requirements"
  cp "$requirements" .venv-clients/requirements.txt
fi

exec 3< <(exec .venv/bin/python tests/js/serve.py)
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true' EXIT
read -r SERVED <&3 || { echo "The server did not start." >&2; exit 1; }
# LiteLLM fetches a list of prices, and the Agents SDK sends traces.
export SERVED LITELLM_LOCAL_MODEL_COST_MAP=True OPENAI_AGENTS_DISABLE_TRACING=1
.venv-clients/bin/python tests/clients/run.py "$@"
