#!/usr/bin/env bash
# fetch.sh FOLDER POM [MAVEN-OPTION...]: puts the run-time jars of a pom into the
# folder, unless they are there. Two callers wait for each other; a folder that
# exists is complete.
#
# Exit status: 0 done; 3 Java or Maven is missing; 4 Maven failed, three times.
set -euo pipefail
lib=$1 pom=$2
shift 2

if ! command -v java >/dev/null; then
	echo "java is missing: a JDK 17 is needed (Debian: openjdk-17-jdk-headless)" >&2
	exit 3
fi
[[ -d $lib ]] && exit 0
if ! command -v mvn >/dev/null; then
	echo "mvn is missing: Maven fetches the jars (Debian: maven)" >&2
	exit 3
fi

mkdir -p "$(dirname "$lib")"
if command -v flock >/dev/null; then
	exec 9>"$lib.lock"
	flock -w 600 9
	[[ -d $lib ]] && exit 0
fi
fresh=$lib.fetching.$$
trap 'rm -rf "$fresh"' EXIT
for attempt in 1 2 3; do
	rm -rf "$fresh"
	# A copy of the pom: Maven likes to own its folder.
	mkdir -p "$fresh/jars"
	cp "$pom" "$fresh/pom.xml"
	if timeout 300 mvn -q -B -f "$fresh/pom.xml" "$@" dependency:copy-dependencies \
		-DincludeScope=runtime -DoutputDirectory="$fresh/jars" >"$fresh/log" 2>&1; then
		mv "$fresh/jars" "$lib"
		exit 0
	fi
	tail -n 20 "$fresh/log" >&2
	echo "fetching $(basename "$lib"): attempt $attempt failed" >&2
	sleep $((attempt * 3))
done
exit 4
