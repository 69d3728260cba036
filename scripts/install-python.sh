#!/usr/bin/env bash
# Installs a Python of Debian sid into .cache, and prints its path. Needs apt, but no root; changes nothing outside .cache.
# apt downloads the packages from the mirror of this machine's own configuration and checks Debian's signature.
# They come with their C library, which is newer than the machine's: the program is changed to load that one.
# usage: install-python.sh 3.14
set -euo pipefail
cd "$(dirname "$0")/.."
version=$1
root=$PWD/.cache/python-$version
python=$root/usr/bin/python$version
if "$python" -c '' 2>/dev/null; then
  echo "$python"
  exit 0
fi
fail() {
  rm -rf "$root"
  echo "Python $version was not installed: $1" >&2
  exit 1
}
command -v apt-get >/dev/null || fail "this is not Debian."
echo "Installing Python $version of Debian sid into .cache, once …" >&2
rm -rf "$root"
apt=$root/apt
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/state"
touch "$apt/status" # no package is installed, so apt selects all that Python needs

codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
mirror=$(apt-get indextargets --format '$(REPO_URI)' -o APT::Get::IndexTargets::ReleaseInfo=false \
  'Created-By: Packages' 'Component: main' "Release: $codename" | head -n 1)
[ -n "$mirror" ] || fail "apt has no source for Debian ${codename:-releases}."
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" >"$apt/sources.list"
options=(
  -qq -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::PreferencesParts=/dev/null
  -o Dir::State="$apt/state" -o Dir::State::Lists="$apt/lists" -o Dir::State::Status="$apt/status"
  -o Dir::Cache="$apt/cache" -o Acquire::Languages=none -o APT::Update::Error-Mode=any
)
[ "$(id -u)" != 0 ] || options+=(-o APT::Sandbox::User=root) # another user cannot read the directory
{
  apt-get "${options[@]}" update &&
    apt-get "${options[@]}" install --yes --no-install-recommends --download-only "python$version-venv" patchelf
} >/dev/null || fail "Debian sid has no python$version, or cannot be reached."
for package in "$apt"/cache/archives/*.deb; do dpkg-deb --extract "$package" "$root"; done
rm -rf "$apt"

libraries=$(echo "$root"/usr/lib/*-linux-gnu*)
loader=$(echo "$libraries"/ld-linux*.so.*)
# On pages of 4 KiB, patchelf 0.18 lays two segments of this program onto one page, and it crashes.
"$loader" --library-path "$libraries" "$root/usr/bin/patchelf" --page-size 65536 \
  --set-interpreter "$loader" --force-rpath --set-rpath "$libraries" "$python"
# The wheel of pip, for `python -m venv`.
sed -i "s#'WHEEL_PKG_DIR': '#&$root#" "$root/usr/lib/python$version"/_sysconfigdata*.py
"$python" -c 'import bz2, ctypes, lzma, readline, sqlite3, ssl' || fail "it does not start."
echo "$python"
