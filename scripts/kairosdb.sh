#!/usr/bin/env bash
# Runs the original KairosDB, 1.3.0-1, for tests, from jars that Maven fetches once
# into ${XDG_CACHE_HOME:-~/.cache}/varve. Nothing is installed.
#
#   kairosdb.sh jars                fetch the jars; prints their folder
#   kairosdb.sh run D [COMMAND...]  become a server (or the command, for example
#                                   export -n metric), in the foreground and in the
#                                   folder D, which holds conf/kairosdb.conf
#
# It is up when GET /api/v1/health/check answers 204. A start that fails ends with
# status 0, as KairosDB does.
#
# Exit status: 0 done; 2 wrong use; 3 Java or Maven is missing; 4 the jars could
# not be fetched.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
lib=${XDG_CACHE_HOME:-$HOME/.cache}/varve/kairosdb-1.3.0-1

usage() {
	sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0" >&2
	exit 2
}

case ${1:-} in
jars | run) ;;
*) usage ;;
esac
"$here/originals/fetch.sh" "$lib" "$here/originals/pom-kairosdb.xml"
if [[ $1 == jars ]]; then
	echo "$lib"
	exit
fi

[[ -n ${2:-} && -f $2/conf/kairosdb.conf ]] || usage
cd "$2"
shift 2
mkdir -p conf/logging webroot log
cp "$here/originals/logback.xml" conf/logging/
export TZ=UTC MALLOC_ARENA_MAX=2
# Up to JDK 17 the charset of KairosDB follows the locale. Guice makes classes in java.lang; the
# validation of requests reads java.util.
exec java -Xms128m -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
	--add-opens=java.base/java.lang=ALL-UNNAMED --add-opens=java.base/java.util=ALL-UNNAMED \
	-Djava.net.preferIPv4Stack=true -Dfile.encoding=UTF-8 -cp "conf/logging:$lib/*" \
	org.kairosdb.core.Main -c "${@:-run}" -p conf/kairosdb.conf
