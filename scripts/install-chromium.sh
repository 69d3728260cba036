#!/usr/bin/env bash
# Installs Chromium, in which the page of the server is tested, where it is missing and this is root on Debian; else
# says what to do. The tests that need it are skipped without it, and say so.
set -euo pipefail
if command -v chromium >/dev/null; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Installing Chromium, once …" >&2
  if { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null; then exit 0; fi
fi
echo "Chromium is missing, so the page is not tested. Install it: apt-get install chromium" >&2
exit 1
