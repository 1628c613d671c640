#!/bin/sh
# Makes collectd available and prints the path of its daemon. Uses an installed
# one, else installs Debian's collectd-core and what its write_http plug-in
# needs (libyajl2). No service is started. Can be run again at any time.
#
# Exit status: 0 available; 3 not installed and this is not root; 4 not
# installed and there is no apt-get; 5 apt-get failed (its messages are on
# standard error).
set -eu

find_daemon() {
	for candidate in "$(command -v collectd || true)" /usr/sbin/collectd; do
		if [ -n "$candidate" ] && [ -x "$candidate" ]; then
			echo "$candidate"
			return 0
		fi
	done
	return 1
}

if find_daemon; then
	exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
	echo "collectd is not installed, and only root can install it" >&2
	exit 3
fi
if ! command -v apt-get >/dev/null; then
	echo "collectd is not installed, and there is no apt-get to install it" >&2
	exit 4
fi

# Debian starts services after installing them, unless this file says no.
guard=/usr/sbin/policy-rc.d
if [ ! -e "$guard" ]; then
	trap 'rm -f "$guard"' EXIT
	printf '#!/bin/sh\nexit 101\n' >"$guard"
	chmod 755 "$guard"
fi

install() {
	DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
		-o DPkg::Lock::Timeout=60 collectd-core libyajl2 >&2
}
# Package lists are often missing or too old on machines for tests.
install || { apt-get update >&2 && install; } || exit 5
find_daemon || exit 5
