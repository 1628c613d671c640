#!/bin/sh
# Makes promtool available and prints its path: an installed one, else that of Debian's
# package prometheus, which is unpacked below VARVE_CACHE (~/.cache/varve) and not
# installed. Can be run again at any time.
#
# Exit status: 0 available; 4 there is none, and no apt-get; 5 apt-get failed (its messages
# are on standard error).
set -eu

if command -v promtool; then
	exit 0
fi
dir="${VARVE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/varve}/promtool"
if [ -x "$dir/usr/bin/promtool" ]; then
	echo "$dir/usr/bin/promtool"
	exit 0
fi
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
	echo "promtool is not installed, and there is no apt-get to get it with" >&2
	exit 4
fi
mkdir -p "$dir"
cd "$dir"
apt-get download prometheus >&2 || { apt-get update >&2 && apt-get download prometheus >&2; } || exit 5
dpkg-deb -x prometheus_*.deb . || exit 5
rm -f prometheus_*.deb
test -x "$dir/usr/bin/promtool" || exit 5
echo "$dir/usr/bin/promtool"
