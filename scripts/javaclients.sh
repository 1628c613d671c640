#!/bin/sh
# Makes the Java clients that Varve is tested with available, and prints the
# class path of the program that drives them (e2e/clients/java). Jars come by
# Maven into the user's cache directory, ${XDG_CACHE_HOME:-~/.cache}/varve,
# where the program is compiled too. What is there is not made again, so this
# is fast and needs no network from the second time on.
#
# Exit status: 0 available; 3 no JDK (17 or later); 4 the jars are not in the
# cache and there is no Maven (mvn) to fetch them; 5 Maven failed; 6 the program
# does not compile. Messages are on standard error.
set -eu

sources=$(cd "$(dirname "$0")/../e2e/clients/java" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/varve/javaclients

if ! command -v java >/dev/null || ! command -v javac >/dev/null; then
	echo "there is no JDK (java and javac)" >&2
	exit 3
fi
major=$(javac -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p')
if [ "${major:-0}" -lt 17 ]; then
	echo "the JDK is ${major:-of unknown version}, want 17 or later" >&2
	exit 3
fi

# What is made carries the checksum of what it is made from.
jars=$cache/jars-$(cksum <"$sources/pom.xml" | tr ' ' -)
classes=$cache/classes-$(cd "$sources" && find . -name '*.java' -o -name pom.xml | sort | xargs cat | cksum | tr ' ' -)
mkdir -p "$cache"
work=$(mktemp -d "$cache/work.XXXXXX")
trap 'rm -rf "$work"' EXIT

# keep moves what is complete into its place, unless another was faster.
keep() {
	[ -d "$2" ] || mv "$1" "$2"
}

if [ ! -d "$jars" ]; then
	if ! command -v mvn >/dev/null; then
		echo "there is no Maven (mvn) to fetch the jars of the Java clients" >&2
		exit 4
	fi
	cp "$sources/pom.xml" "$work"
	# Twice: downloads break off now and then, and what has arrived is kept.
	fetch() {
		(cd "$work" && timeout 120 mvn -B -q org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies -DoutputDirectory="$work/jars" >&2)
	}
	fetch || fetch || exit 5
	keep "$work/jars" "$jars"
fi
if [ ! -d "$classes" ]; then
	find "$sources" -name '*.java' -exec javac -nowarn -encoding UTF-8 -Xlint:-options \
		-d "$work/classes" -cp "$jars/*" {} + >&2 || exit 6
	keep "$work/classes" "$classes"
fi
echo "$classes:$jars/*"
