#!/usr/bin/env bash
# Runs Apache Cassandra for tests, from jars that Maven fetches once into
# ${XDG_CACHE_HOME:-~/.cache}/varve. Nothing is installed.
#
#   cassandra.sh jars [5.0.8|4.1.10]   fetch the jars; prints their folder
#   cassandra.sh start --dir D         start nodes in the background and wait until
#                                      they answer; prints "address pid-file" each
#   cassandra.sh stop --dir D          stop the nodes of that folder
#   cassandra.sh run --dir D           become one node, in the foreground
#   cassandra.sh with [--version V] COMMAND...
#                                      start one node, run the command with its
#                                      address in VARVE_TEST_CASSANDRA, stop the
#                                      node. Without a node, that is said loudly and
#                                      the command runs all the same
#
# Options of start and run:
#   --version V   5.0.8 (default) or 4.1.10
#   --nodes N     size of the ring (default 1)
#   --node I      run only: which of them, from 1 (default 1); 1 goes first
#   --ip A        address of node 1; node I has the I-th address from there.
#                 Default: one of 127/8 that follows from the process id, so that
#                 rings of one machine do not meet
#   --yaml F      a file whose settings are laid over the node's cassandra.yaml
#   --datacenters L   data centre of each node, with commas: dc1,dc1,dc2 (default: all
#                 in one, which Cassandra calls datacenter1)
#   --heap M      heap of a node (default 512m)
#   --forget      a node that is killed may forget changes of the schema, which are then quicker
#   --jmx P       run only: port for nodetool (default none)
#   --clock F     run only: a file of 8 bytes, little-endian, which may be changed at
#                 any time: the nanoseconds by which the node's clock is ahead. Needs
#                 a JDK
#
# CQL is at port 9042 of each address. Node I lives in D/nodeI and goes on where
# it ended when D was used before; its output is in D/nodeI/log/stdout.log.
#
# Exit status: 0 done; 2 wrong use; 3 Java or Maven is missing; 4 the jars could not
# be fetched, or the clock of --clock could not be compiled; 5 a node did not start
# (the end of its log is on standard error). with ends with the status of the command.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/varve
start_limit_s=180

fail() {
	local status=$1
	shift
	echo "cassandra.sh: $*" >&2
	exit "$status"
}

version=5.0.8 dir='' nodes=1 node=1 ip='' yaml='' heap=512m jmx='' clock='' datacenters='' forget=''
verb=${1:-}
[[ -n $verb ]] && shift
command=()
[[ $verb == jars && -n ${1:-} && $1 != --* ]] && set -- --version "$@"
while (($#)); do
	case $1 in
	--version | --dir | --nodes | --node | --ip | --yaml | --heap | --jmx | --clock | --datacenters)
		[[ -n ${2:-} ]] || fail 2 "$1 needs a value"
		declare "${1#--}=$2"
		shift 2
		;;
	--forget)
		forget=yes
		shift
		;;
	*)
		[[ $verb == with && $1 != --* ]] || fail 2 "unknown option $1"
		command=("$@")
		break
		;;
	esac
done
[[ $verb != with || ${#command[@]} -gt 0 ]] || fail 2 "with needs a command"

# jars puts the folder of the jars into $lib, fetched if they are not there.
jars() {
	lib=$cache/cassandra-$version
	"$here/originals/fetch.sh" "$lib" "$here/originals/pom-cassandra.xml" "-Dcassandra.version=$version" || exit $?
}

# address prints the address of the node $1.
address() {
	echo "${ip%.*}.$((${ip##*.} + $1 - 1))"
}

# token prints the token of the node $1: the ring in equal parts.
token() {
	echo $((-9223372036854775807 + $1 * 2 * (9223372036854775807 / nodes) - 1))
}

# configure writes what the node reads at its start.
configure() {
	mkdir -p "$home"/{conf,data,log,tmp,triggers}
	sed -e "s|@IP@|$(address "$node")|g; s|@SEED@|$(address 1)|g; s|@TOKEN@|$(token "$node")|g" \
		"$here/originals/cassandra.yaml.in" >"$home/conf/cassandra.yaml"
	[[ -z $yaml ]] || cat "$yaml" >>"$home/conf/cassandra.yaml"
	local of
	IFS=, read -ra of <<<"$datacenters"
	if ((${#of[@]})); then
		((${#of[@]} == nodes)) || fail 2 "--datacenters $datacenters: want one for each of $nodes nodes"
		echo "endpoint_snitch: GossipingPropertyFileSnitch" >>"$home/conf/cassandra.yaml"
		printf 'dc=%s\nrack=rack1\n' "${of[node - 1]}" >"$home/conf/cassandra-rackdc.properties"
	fi
	cp "$here/originals/logback.xml" "$home/conf/"
}

# set_clock puts the class of the clock that a file sets into the node's class path.
set_clock() {
	command -v javac >/dev/null || fail 3 "javac is missing: --clock needs a JDK"
	local said
	said=$(javac -nowarn -d "$home/conf" -cp "$lib/*" "$here/originals/SetClock.java" 2>&1) ||
		fail 4 "SetClock.java does not compile: $said"
}

# become_node does not return.
become_node() {
	home=$dir/node$node
	jars
	configure
	[[ -z $clock ]] || set_clock
	local before=()
	# Cassandra would lock all of its memory, and hold more than it needs.
	ulimit -l 64 2>/dev/null || true
	if ((EUID == 0)) && command -v setpriv >/dev/null; then
		before=(setpriv --bounding-set=-ipc_lock)
	fi
	export MALLOC_ARENA_MAX=2
	exec "${before[@]}" java @"$here/originals/cassandra.jvm" "-Xms$heap" "-Xmx$heap" \
		-javaagent:"$(echo "$lib"/jamm-*.jar)" \
		-Djava.io.tmpdir="$home/tmp" -Djna.tmpdir="$home/tmp" \
		-Dcassandra.config="file://$home/conf/cassandra.yaml" \
		-Dlogback.configurationFile="file://$home/conf/logback.xml" \
		-Dcassandra.storagedir="$home/data" -Dcassandra.logdir="$home/log" \
		-Dcassandra.triggers_dir="$home/triggers" \
		-Dcassandra.ring_delay_ms=10000 ${jmx:+-Dcassandra.jmx.local.port="$jmx"} \
		${forget:+-Dcassandra.unsafesystem=true} \
		${clock:+-Dcassandra.clock=SetClock -Dvarve.clock="$clock"} \
		-Dcassandra-foreground=yes \
		-cp "$home/conf:$lib/*" org.apache.cassandra.service.CassandraDaemon
}

# answers tells whether CQL is spoken at the address $1: it asks for the options
# of protocol 4 and waits for the reply. A node that wants TLS hangs up on that,
# which is as good.
answers() {
	(
		exec 3<>"/dev/tcp/$1/9042"
		printf '\x04\0\0\0\x05\0\0\0\0' >&3
		timeout 5 head -c 1 <&3
	) >/dev/null 2>&1
}

# start_nodes starts one after the other: nodes that join at the same moment
# refuse each other.
start_nodes() {
	jars
	for ((node = 1; node <= nodes; node++)); do
		home=$dir/node$node
		mkdir -p "$home/log"
		if [[ -s $home/pid ]] && kill -0 "$(<"$home/pid")" 2>/dev/null; then
			fail 5 "a node runs in $home already (pid $(<"$home/pid"))"
		fi
		setsid "$here/cassandra.sh" run --dir "$dir" --version "$version" --nodes "$nodes" --node "$node" \
			--ip "$ip" ${yaml:+--yaml "$yaml"} ${datacenters:+--datacenters "$datacenters"} ${forget:+--forget} --heap "$heap" >"$home/log/stdout.log" 2>&1 </dev/null &
		echo $! >"$home/pid"
		await "$(address "$node")"
		echo "$(address "$node"):9042 $home/pid"
	done
}

# await waits until the node in $home answers at the address $1.
await() {
	local i
	for ((i = 0; i < 4 * start_limit_s; i++)); do
		answers "$1" && return
		kill -0 "$(<"$home/pid")" 2>/dev/null || break
		sleep 0.25
	done
	tail -n 40 "$home/log/stdout.log" >&2
	stop_nodes
	fail 5 "node $node at $1 did not start; its log: $home/log/stdout.log"
}

stop_nodes() {
	local pidfile pid i
	for pidfile in "$dir"/node*/pid; do
		[[ -s $pidfile ]] || continue
		pid=$(<"$pidfile")
		kill -CONT "$pid" 2>/dev/null || true
		kill -TERM "$pid" 2>/dev/null || true
		for ((i = 0; i < 100; i++)); do
			kill -0 "$pid" 2>/dev/null || break
			sleep 0.1
		done
		kill -KILL "$pid" 2>/dev/null || true
		rm -f "$pidfile"
	done
}

# with_node runs the command beside a node of its own. Its data is in memory if there is room: the
# tests make hundreds of keyspaces, and most of their time would be spent on files.
with_node() {
	local ring memory_kb
	memory_kb=$(df --output=avail /dev/shm 2>/dev/null | tail -n 1) || true
	if ((${memory_kb:-0} > 4 << 20)) && [[ -w /dev/shm ]]; then
		dir=$(mktemp -d -p /dev/shm varve-cassandra.XXXXXX)
	else
		dir=$(mktemp -d)
	fi
	trap 'stop_nodes; rm -rf "$dir"' EXIT
	trap 'exit 130' INT TERM HUP
	if ring=$("$0" start --dir "$dir" --version "$version" --forget); then
		export VARVE_TEST_CASSANDRA=${ring%% *}
	else
		printf '\n*** NO CASSANDRA (exit status %d of scripts/cassandra.sh start): TESTS THAT NEED ONE ARE SKIPPED ***\n\n' $? >&2
	fi
	"${command[@]}"
}

if [[ -z $ip ]]; then
	ip=127.0.0.1
	[[ $(uname) != Linux ]] || ip=127.$(($$ / 250 % 98 + 1)).$(($$ % 250 + 1)).1
fi
case $verb in
start | run | stop)
	[[ -n $dir ]] || fail 2 "$verb needs --dir"
	mkdir -p "$dir"
	dir=$(cd "$dir" && pwd)
	;;
esac
case $verb in
jars)
	jars
	echo "$lib"
	;;
start) start_nodes ;;
stop) stop_nodes ;;
run) become_node ;;
with) with_node ;;
*) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0" >&2 && exit 2 ;;
esac
