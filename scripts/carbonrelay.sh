#!/bin/sh
# Makes carbon-c-relay available and prints the path of its program. Uses an
# installed one, else downloads Debian's package into the user's cache directory,
# ${XDG_CACHE_HOME:-~/.cache}/varve, and unpacks it there: nothing is installed and
# no service is started.
#
# Exit status: 0 available; 4 it is neither installed nor in the cache, and there is no
# apt-get or dpkg; 5 it could not be downloaded, or does not run here. Messages are on
# standard error.
set -eu

if command -v carbon-c-relay; then
	exit 0
fi
cache=${XDG_CACHE_HOME:-$HOME/.cache}/varve/carbonrelay
program=$cache/unpacked/usr/bin/carbon-c-relay
if [ ! -x "$program" ]; then
	if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
		echo "carbon-c-relay is not installed, and there is no apt-get and dpkg to fetch it" >&2
		exit 4
	fi
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/work.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	fetch() { (cd "$work" && timeout 100 apt-get download carbon-c-relay >&2); }
	# Package lists are often missing or too old on machines for tests.
	fetch || { apt-get update >&2 && fetch; } || exit 5
	dpkg -x "$work"/carbon-c-relay*.deb "$work/unpacked" >&2 || exit 5
	[ -d "$cache/unpacked" ] || mv "$work/unpacked" "$cache/unpacked"
fi
"$program" -v >&2 || exit 5 # a library may be missing
echo "$program"
