#!/bin/sh
# Makes graphite-web available, which tests put in front of Varve, and prints the
# directory to put into PYTHONPATH. It comes by pip into the user's cache
# directory, ${XDG_CACHE_HOME:-~/.cache}/varve, and stays there.
#
# Exit status: 0 available; 3 no Python 3 that it runs on; 4 it is not in the
# cache and there is no pip; 5 pip failed. Messages are on standard error.
set -eu

packages='graphite-web==1.1.10 Django==3.0.14 django-tagging==0.4.3'
cache=${XDG_CACHE_HOME:-$HOME/.cache}/varve/graphiteweb

if ! command -v python3 >/dev/null; then
	echo "there is no python3" >&2
	exit 3
fi
if ! python3 -c 'import sys; sys.exit(not (3, 6) <= sys.version_info < (3, 12))'; then
	echo "graphite-web 1.1.10 needs Python 3.6 to 3.11; python3 is $(python3 --version)" >&2
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
	timeout 200 python3 -m pip install -q --disable-pip-version-check --no-compile --root-user-action=ignore --target "$work/library" $packages >&2 || exit 5
	[ -d "$library" ] || mv "$work/library" "$library"
fi
echo "$library"
