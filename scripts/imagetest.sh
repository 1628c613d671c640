#!/usr/bin/env bash
# Builds the container image and runs it as docs/install.md says: a token, a point, a
# question, health; with a read-only file system and without capabilities; stopped, killed
# and started again with the same volume.
#
#   scripts/imagetest.sh
#
# ENGINE is docker or podman, with its own options if wanted ("podman --runtime runc"),
# BUILD and RUN are options of its build and run ("--isolation chroot").
#
# Exit status: 0 passed; 1 failed; 4 there is neither docker nor podman, or it does not work.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for tool in docker podman; do
	if [ -z "${ENGINE:-}" ] && "$tool" info >/dev/null 2>&1; then ENGINE=$tool; fi
done
[ -n "${ENGINE:-}" ] || { echo "imagetest.sh: neither docker nor podman works here" >&2; exit 4; }
read -ra engine <<<"$ENGINE"
read -ra build <<<"${BUILD:-}"
read -ra run <<<"${RUN:-}"
name=varve-imagetest-$$
image=localhost/$name

fail() {
	echo "FAILED: $*"
	"${engine[@]}" logs "$name" 2>&1 | tail -40 || true
	exit 1
}
clean() {
	"${engine[@]}" rm -f "$name" >/dev/null 2>&1 || true
	"${engine[@]}" volume rm "$name" >/dev/null 2>&1 || true
	"${engine[@]}" rmi "$image" >/dev/null 2>&1 || true
}
trap clean EXIT
step() { printf '\n-- %s\n' "$*"; }
ask() { path=$1; shift; curl -sS -m 20 -H "Authorization: Bearer $token" "http://$address$path" "$@"; }
well() {
	for _ in $(seq 120); do
		if "${engine[@]}" exec "$name" varve health >/dev/null 2>&1; then return; fi
		sleep 0.5
	done
	fail "the server does not become well"
}
# Where the engine says that the HTTP port is open on this machine.
published() { address=$("${engine[@]}" port "$name" 8080/tcp | head -n 1); }
put() {
	status=$(printf '[{"name":"image.test","timestamp":%s000,"value":%s,"tags":{"host":"a"}}]' "$(date +%s)" "$1" |
		ask /api/v1/datapoints -d @- -o /dev/null -w '%{http_code}')
	[ "$status" = 204 ] || fail "put $1: status $status, want 204"
	sleep 1 # the next point has a time of its own
}
has() {
	ask /api/v1/datapoints/query -d '{"start_relative":{"value":1,"unit":"hours"},"metrics":[{"name":"image.test"}]}' |
		grep -q "\"sample_size\":$1," || fail "not $1 points in the store"
}

step "build"
"${engine[@]}" build "${build[@]}" -f deploy/docker/Dockerfile -t "$image" .

step "run: read-only, without capabilities, every sender is asked for a token"
"${engine[@]}" run -d --name "$name" --read-only --cap-drop ALL --security-opt no-new-privileges "${run[@]}" \
	-p 127.0.0.1::8080 -v "$name:/var/lib/varve" "$image"
well
published
token=nobody
[ "$(ask /api/v1/metricnames -o /dev/null -w '%{http_code}')" = 401 ] || fail "a question with a wrong token is not answered 401"
token=$("${engine[@]}" exec "$name" varve token create me --role read,write 2>/dev/null)
sleep 2 # a new token works within a second
put 1
has 1

step "stop: within its time, with status 0; start: the point and the token are there"
"${engine[@]}" stop -t 20 "$name"
code=$("${engine[@]}" inspect -f '{{.State.ExitCode}}' "$name")
[ "$code" = 0 ] || fail "the server ended with status $code"
"${engine[@]}" start "$name"
well
published
has 1
put 2

step "kill: nothing acknowledged is lost"
"${engine[@]}" kill -s KILL "$name"
"${engine[@]}" start "$name"
well
published
has 2

printf '\nPASSED\n'
