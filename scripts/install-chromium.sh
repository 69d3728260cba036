#!/usr/bin/env bash
# Installs Chromium, which the tests of the server's page need, if it is missing. This requires root on Debian; otherwise
# the script prints the command. Without Chromium, these tests are skipped with a message.
set -euo pipefail
if command -v chromium >/dev/null; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Installing Chromium, once …" >&2
  if { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null; then exit 0; fi
fi
echo "Chromium is missing, so the page is not tested. Install it: apt-get install chromium" >&2
exit 1
