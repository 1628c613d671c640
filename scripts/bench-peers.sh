#!/bin/sh
# Installs the servers that bench compares Varve with, from Debian's archive:
# victoria-metrics, influxdb, prometheus. None of them is started: bench does
# that, on loopback, in directories of its own.
#
#	scripts/bench-peers.sh
#
# Exit status: 0 all are installed, 1 an installation failed, 2 it is not
# possible here (no root, no apt-get, or none of the packages in the archive).
# Running it again changes nothing.
set -eu

packages="victoria-metrics influxdb prometheus"
policy=/usr/sbin/policy-rc.d

installed() { [ "$(dpkg-query -W -f '${Status}' "$1" 2>/dev/null)" = 'install ok installed' ]; }

command -v apt-get >/dev/null || { echo "bench-peers: no apt-get: this is not Debian" >&2; exit 2; }

missing=
for p in $packages; do
	installed "$p" || missing="$missing $p"
done

if [ -n "$missing" ]; then
	[ "$(id -u)" = 0 ] || { echo "bench-peers: installing$missing needs root" >&2; exit 2; }

	# A policy that forbids every service keeps packages from starting theirs.
	# One that is there already is the owner's, and is put back.
	kept=
	if [ -e "$policy" ]; then
		kept=$(mktemp)
		cp -p "$policy" "$kept"
	fi
	restore() {
		if [ -n "$kept" ]; then
			cp -p "$kept" "$policy"
			rm -f "$kept"
		else
			rm -f "$policy"
		fi
	}
	trap restore EXIT
	trap 'exit 1' HUP INT TERM
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"

	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq || echo "bench-peers: apt-get update failed, trying what is known" >&2
	for p in $missing; do
		apt-cache show "$p" >/dev/null 2>&1 || { echo "bench-peers: the archive has no package $p" >&2; exit 2; }
	done
	# shellcheck disable=SC2086 # one word a package
	apt-get install -y -qq --no-install-recommends $missing >/dev/null || {
		echo "bench-peers: installing$missing failed" >&2
		exit 1
	}
fi

for p in $packages; do
	installed "$p" || { echo "bench-peers: $p is still not installed" >&2; exit 1; }
	dpkg-query -W -f '${Package} ${Version}\n' "$p"
done
