#!/bin/sh
# Makes the Node clients that Varve is tested with available, and prints the
# directory that holds their node_modules. They come by npm into the user's
# cache directory, ${XDG_CACHE_HOME:-~/.cache}/varve, and stay there.
#
# Exit status: 0 available; 3 no Node; 4 the packages are not in the cache and
# there is no npm; 5 npm failed. Messages are on standard error.
set -eu

packages='statsd@0.9.0 statsd-kairosdb-backend@0.0.2 statsd-opentsdb-backend@0.1.0 kairosdb@0.0.3'
cache=${XDG_CACHE_HOME:-$HOME/.cache}/varve/nodeclients

if ! command -v node >/dev/null; then
	echo "there is no node" >&2
	exit 3
fi
library=$cache/$(echo "$packages" | cksum | tr ' ' -)
if [ ! -d "$library" ]; then
	if ! command -v npm >/dev/null; then
		echo "there is no npm to install $packages" >&2
		exit 4
	fi
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/work.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	# shellcheck disable=SC2086 # one word a package
	timeout 200 npm install --prefix "$work/library" --ignore-scripts --no-audit --no-fund --loglevel=error $packages >&2 || exit 5
	[ -d "$library" ] || mv "$work/library" "$library"
fi
echo "$library"
