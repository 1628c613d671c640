#!/bin/sh
# usage: pip.sh NAME PACKAGES: makes Python packages available, given as to pip in one
# word, and prints the directory to put into PYTHONPATH. They come by pip into the user's
# cache directory, ${XDG_CACHE_HOME:-~/.cache}/varve/NAME, and stay there.
#
# Exit status: 0 available; 3 no Python 3; 4 the packages are not in the cache
# and there is no pip; 5 pip failed. Messages are on standard error.
set -eu

packages=$2
cache=${XDG_CACHE_HOME:-$HOME/.cache}/varve/$1

if ! command -v python3 >/dev/null; then
	echo "there is no python3" >&2
	exit 3
fi
version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
library=$cache/$version-$(echo "$packages" | cksum | tr ' ' -)
if [ ! -d "$library" ]; then
	if ! python3 -m pip --version >/dev/null 2>&1; then
		echo "python3 has no pip to install $packages" >&2
		exit 4
	fi
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/work.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	# shellcheck disable=SC2086 # one word a package
	timeout 200 python3 -m pip install -q --disable-pip-version-check --no-compile --root-user-action=ignore --target "$work/library" $packages >&2 || {
		echo "pip could not install $packages within 200 s" >&2
		exit 5
	}
	[ -d "$library" ] || mv "$work/library" "$library"
fi
echo "$library"
