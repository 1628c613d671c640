#!/usr/bin/env bash
# Installs, starts, upgrades, removes and purges the Debian package, under a systemd of its
# own: this machine's file system with all changes kept in memory (overlayfs), in
# namespaces of its own, network included. Nothing on the machine changes.
#
#   scripts/packagetest.sh [OLD.deb NEW.deb]     without them it builds two
#
# Exit status: 0 passed; 1 failed; 3 this is not root; 4 a tool or systemd is missing;
# 5 the kernel has no overlayfs or namespaces for it.
set -euo pipefail

# steps runs inside, as a service of the systemd that is PID 1 there.
steps() {
	fail() {
		echo "FAILED: $*"
		systemctl status varve --no-pager --full || true
		journalctl -u varve --no-pager -n 40 || true
		exit 1
	}
	step() { printf '\n-- %s\n' "$*"; }
	is() {
		for _ in $(seq 120); do
			state=$(systemctl "$1" varve 2>&1 || true)
			if [ "$state" = "$2" ]; then return; fi
			sleep 0.5
		done
		fail "systemctl $1 varve: $state, want $2"
	}
	put() { printf '[{"name":"package.test","timestamp":%s000,"value":%s,"tags":{"host":"a"}}]' "$(date +%s)" "$1" | ask /api/v1/datapoints -d @- || fail "put $1"; }
	ask() { path=$1; shift; curl -fsS -m 20 "http://127.0.0.1:8080$path" "$@"; }
	has() {
		ask /api/v1/datapoints/query -d '{"start_relative":{"value":1,"unit":"hours"},"metrics":[{"name":"package.test","aggregators":[{"name":"sum","sampling":{"value":1,"unit":"years"}}]}]}' |
			grep -q "sample_size\":$1," || fail "not $1 points in the store"
	}
	old=$1 new=$2

	step "install: the server runs as varve, from its unit, and is well"
	dpkg -i "$old"
	is is-active active
	is is-enabled enabled
	varve health --config /etc/varve/varve.yaml
	[ "$(stat -c '%U %a' /var/lib/varve)" = "varve 750" ] || fail "data: $(stat -c '%U %a' /var/lib/varve)"
	[ "$(stat -c '%U:%G %a' /etc/varve/varve.yaml)" = "root:varve 640" ] || fail "settings: $(stat -c '%U:%G %a' /etc/varve/varve.yaml)"
	[ "$(ps -o user= -C varve)" = varve ] || fail "it runs as $(ps -o user= -C varve)"
	put 1
	sleep 1 # a point a second: the second of the next one is another
	if ldd /usr/bin/varve >/dev/null 2>&1; then fail "the binary is not static"; fi

	step "the unit: no complaint, little exposed, and the limits hold"
	systemd-analyze verify varve.service 2>&1 | (! grep varve) || fail "systemd-analyze verify"
	exposure=$(systemd-analyze security varve.service --no-pager | sed -n 's/.*exposure level for varve.service: \([0-9]*\).*/\1/p')
	[ "$exposure" -le 1 ] || fail "exposure $exposure"
	pid=$(systemctl show -p MainPID --value varve)
	files=65536 most=$(ulimit -Hn) # on some machines for tests not even root may raise its limit
	[ "$most" = unlimited ] || [ "$most" -ge $files ] || files=$most
	grep -q "Max open files *$files" "/proc/$pid/limits" || fail "$(grep files "/proc/$pid/limits")"
	grep -q '^NoNewPrivs:[[:space:]]*1' "/proc/$pid/status" || fail "it may gain rights"
	grep -q '^CapBnd:[[:space:]]*0*$' "/proc/$pid/status" || fail "it has capabilities"

	step "it is restarted after a crash, and has lost nothing"
	kill -9 "$pid"
	for _ in $(seq 120); do
		now=$(systemctl show -p MainPID --value varve)
		[ "$now" != 0 ] && [ "$now" != "$pid" ] && varve health >/dev/null 2>&1 && break
		sleep 0.5
	done
	is is-active active
	has 1

	step "a reload reads the settings again"
	echo "log: {level: debug}" >>/etc/varve/varve.yaml
	systemctl reload varve
	for _ in $(seq 60); do journalctl -u varve --no-pager | grep -q 'log.level' && break; sleep 0.5; done
	journalctl -u varve --no-pager | grep -q 'log.level' || fail "the log does not tell of the reload"

	step "upgrade: the settings that were changed stay, the point too"
	dpkg -i --force-confold "$new"
	is is-active active
	[ "$(dpkg-query -f '${Version}' -W varve)" = "$(dpkg-deb -f "$new" Version)" ] || fail "version $(dpkg-query -W varve)"
	grep -q '^log: {level: debug}' /etc/varve/varve.yaml || fail "the settings are gone"
	[ "$(stat -c '%U:%G %a' /etc/varve/varve.yaml)" = "root:varve 640" ] || fail "settings: $(stat -c '%U:%G %a' /etc/varve/varve.yaml)"
	has 1
	put 2
	has 2

	step "the scripts can be run again"
	/var/lib/dpkg/info/varve.postinst configure "$(dpkg-deb -f "$new" Version)"
	/var/lib/dpkg/info/varve.postinst abort-upgrade 0
	varve health --wait
	has 2

	step "downgrade: the older program reads the store of the newer one"
	dpkg -i --force-confold --force-downgrade "$old"
	is is-active active
	has 2

	step "a service that is disabled and stopped stays so through an upgrade"
	systemctl disable --now varve
	dpkg -i --force-confold "$new"
	is is-active inactive
	is is-enabled disabled
	systemctl enable --now varve
	is is-active active

	step "settings without a meaning: the start fails soon, and the log says where"
	echo "no_such_key: 1" >>/etc/varve/varve.yaml
	if timeout 120 systemctl restart varve; then fail "it has started"; fi
	journalctl -u varve --no-pager | grep -q 'unknown key no_such_key' || fail "the log does not say why"
	sed -i '/no_such_key/d' /etc/varve/varve.yaml
	systemctl reset-failed varve
	systemctl restart varve
	has 2

	step "remove: stopped, program gone, settings and data there"
	dpkg -r varve
	is is-active inactive
	[ ! -e /usr/bin/varve ] && [ -e /etc/varve/varve.yaml ] && [ -d /var/lib/varve/log ] || fail "$(ls /usr/bin/varve /etc/varve /var/lib/varve 2>&1)"

	step "install again: with the same data"
	dpkg -i "$new"
	is is-active active
	is is-enabled enabled
	has 2

	step "purge: settings gone, data kept"
	dpkg -P varve
	[ ! -e /etc/varve/varve.yaml ] && [ -d /var/lib/varve/log ] || fail "$(ls /etc/varve /var/lib/varve 2>&1)"
	getent passwd varve >/dev/null || fail "the user is gone, and its data is not"

	step "purge of a package whose data was deleted: the user goes too"
	dpkg -i "$new"
	systemctl stop varve
	rm -r /var/lib/varve/*
	dpkg -P varve
	if getent passwd varve || [ -e /var/lib/varve ]; then fail "left over"; fi
	if systemctl cat varve >/dev/null 2>&1; then fail "the unit is left over"; fi
	printf '\nPASSED\n'
}

# boot makes the file system and turns into its systemd. It runs in the new namespaces.
boot() {
	mount -t tmpfs -o size=2g tmpfs "$1"
	mkdir "$1/upper" "$1/work" "$1/root"
	mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
	cd "$1/root"
	mount -t proc proc proc
	mount -t sysfs -o ro sysfs sys
	mount -t cgroup2 cgroup2 sys/fs/cgroup
	mount -t tmpfs tmpfs run
	mount --rbind /dev dev
	mkdir -p root/packagetest
	mount --bind "$2" root/packagetest
	ip link set lo up
	rm -f usr/sbin/policy-rc.d # some machines for tests start no services
	: >etc/machine-id
	cat >etc/systemd/system/packagetest.service <<-'UNIT'
		[Unit]
		After=basic.target dbus.socket
		Requires=basic.target dbus.socket
		SuccessAction=exit-force
		FailureAction=exit-force
		SuccessActionExitStatus=0
		FailureActionExitStatus=1

		[Service]
		Type=oneshot
		TimeoutStartSec=600
		Environment=DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
		ExecStart=/bin/bash /root/packagetest/script inside /root/packagetest/old.deb /root/packagetest/new.deb
		StandardOutput=append:/root/packagetest/output
		StandardError=inherit
	UNIT
	export container=other
	exec chroot . /lib/systemd/systemd --system --unit=packagetest.service --show-status=0
}

case "${1:-}" in
inside) steps "$2" "$3"; exit ;;
boot) boot "$2" "$3"; exit ;;
esac

[ "$(id -u)" = 0 ] || { echo "the package is installed with all rights: run this as root" >&2; exit 3; }
for tool in dpkg dpkg-deb unshare curl ip systemd-analyze deb-systemd-helper; do
	command -v "$tool" >/dev/null || { echo "there is no $tool on this machine" >&2; exit 4; }
done
[ -x /lib/systemd/systemd ] || { echo "there is no systemd on this machine" >&2; exit 4; }
grep -qw overlay /proc/filesystems && unshare --mount --pid --fork --uts --ipc --cgroup --net true ||
	{ echo "the kernel gives no overlayfs or no namespaces" >&2; exit 5; }

here=$(mktemp -d /var/tmp/varve-packagetest.XXXXXX)
trap 'rm -rf "$here"' EXIT
mkdir "$here/point" "$here/share"
cp "$0" "$here/share/script"
if [ $# -ge 2 ]; then
	cp "$1" "$here/share/old.deb"
	cp "$2" "$here/share/new.deb"
else
	cd "$(dirname "$0")/.."
	for version in 0.0.1 0.0.2; do
		go run ./tools/packaging -version $version -targets "linux/$(dpkg --print-architecture)" -out "$here/$version" >/dev/null
	done
	cp "$here"/0.0.1/*.deb "$here/share/old.deb"
	cp "$here"/0.0.2/*.deb "$here/share/new.deb"
fi
status=0
timeout -k 10 900 unshare --mount --propagation private --pid --fork --kill-child --uts --ipc --cgroup --net \
	bash "$here/share/script" boot "$here/point" "$here/share" || status=$?
cat "$here/share/output"
grep -qx PASSED "$here/share/output" || status=1
exit $status
