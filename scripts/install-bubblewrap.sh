#!/usr/bin/env bash
# Installs bubblewrap, which the sandbox needs, where it is missing and this is root on Debian; else says what to do.
# The tests that need it are skipped without it, and say so.
set -euo pipefail
if command -v bwrap >/dev/null; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Installing bubblewrap, once …" >&2
  if { apt-get update -qq && apt-get install -y -qq --no-install-recommends bubblewrap; } >/dev/null; then exit 0; fi
fi
echo "bubblewrap is missing, so the tests of the sandbox are skipped. Install it: apt-get install bubblewrap" >&2
exit 1
