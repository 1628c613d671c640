#!/bin/sh
# Looks for known vulnerabilities in code that Varve calls, by Go's database at
# https://vuln.go.dev or the one that GOVULNDB names (file:///dir works too).
#
# Exit status: 0 none; 3 some, which are printed; 4 the checker or the database cannot be had.
set -eu

version=v1.9.0
bin="${XDG_CACHE_HOME:-$HOME/.cache}/varve/govulncheck-$version"
if [ ! -x "$bin/govulncheck" ]; then
	GOBIN="$bin" go install "golang.org/x/vuln/cmd/govulncheck@$version" || exit 4
fi
status=0
"$bin/govulncheck" ${GOVULNDB:+-db "$GOVULNDB"} "${@:-./cmd/varve}" || status=$?
case $status in
0 | 3) exit $status ;;
*) exit 4 ;;
esac
