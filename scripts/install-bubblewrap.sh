#!/usr/bin/env bash
# Installs bubblewrap, which the sandbox needs, if it is missing. This requires root on Debian; otherwise the script
# prints the command. Without bubblewrap, the tests of the sandbox are skipped with a message.
set -euo pipefail
if command -v bwrap >/dev/null; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Installing bubblewrap, once …" >&2
  if { apt-get update -qq && apt-get install -y -qq --no-install-recommends bubblewrap; } >/dev/null; then exit 0; fi
fi
echo "bubblewrap is missing, so the tests of the sandbox are skipped. Install it: apt-get install bubblewrap" >&2
exit 1
