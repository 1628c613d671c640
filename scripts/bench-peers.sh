#!/bin/sh
# Installs the servers that bench compares Varve with, from Debian's archive:
# victoria-metrics, influxdb, prometheus, redis-server, postgresql, graphite-carbon. None of them is started: bench does
# that, on loopback, in directories of its own.
#
#	scripts/bench-peers.sh
#
# Exit status: 0 all are installed; 3 something is not installed and this is not
# root; 4 there is no apt-get; 5 apt-get failed (its messages are on standard
# error). Can be run again at any time.
set -eu

packages="victoria-metrics influxdb prometheus redis-server postgresql graphite-carbon"

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

missing=
for p in $packages; do
	installed "$p" || missing="$missing $p"
done

if [ -n "$missing" ]; then
	[ "$(id -u)" = 0 ] || { echo "not installed, and only root can install:$missing" >&2; exit 3; }
	command -v apt-get >/dev/null || { echo "not installed, and there is no apt-get to install:$missing" >&2; exit 4; }

	# Debian starts services after installing them, unless this file says no.
	guard=/usr/sbin/policy-rc.d
	kept=
	if [ -e "$guard" ]; then
		kept=$(mktemp)
		cp -p "$guard" "$kept"
	fi
	restore() {
		if [ -n "$kept" ]; then
			cp -p "$kept" "$guard"
			rm -f "$kept"
		else
			rm -f "$guard"
		fi
	}
	trap restore EXIT
	trap 'exit 5' HUP INT TERM
	printf '#!/bin/sh\nexit 101\n' >"$guard"
	chmod 755 "$guard"

	install() {
		# shellcheck disable=SC2086 # one word a package
		DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
			-o DPkg::Lock::Timeout=60 $missing >&2
	}
	# Package lists are often missing or too old on machines for tests.
	install || { apt-get update >&2 && install; } || exit 5
fi

for p in $packages; do
	installed "$p" || { echo "$p is still not installed" >&2; exit 5; }
	dpkg-query -W -f '${Package} ${Version}\n' "$p"
done
