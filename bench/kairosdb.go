package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"varve/internal/work"
)

// kairosTarget is KairosDB on a node of Cassandra. The scripts of this
// repository fetch and start both.
type kairosTarget struct{}

// kairosDB is a running KairosDB. It has the same protocol as Varve, so requests
// and answers are the same; its costs are those of both processes.
type kairosDB struct {
	*varve
	cassandra string // directory
	sent      workload
}

func (kairosTarget) name() string { return "kairosdb" }

// version fetches the programs at its first call.
func (kairosTarget) version(ctx context.Context) (string, error) {
	return "1.3.0-1, on Cassandra 5.0.8", fetchJars(ctx, "kairosdb.sh", "cassandra.sh")
}

func fetchJars(ctx context.Context, scripts ...string) error {
	for _, script := range scripts {
		out, err := exec.CommandContext(ctx, filepath.Join("scripts", script), "jars").CombinedOutput()
		var status *exec.ExitError
		if errors.As(err, &status) && status.ExitCode() == 3 || errors.Is(err, os.ErrNotExist) {
			return exec.ErrNotFound
		}
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", script, err, out)
		}
	}
	return nil
}

// javaOptions and nodeSettings undo the options with which the scripts keep
// processes small for tests. Here Java runs with the compilers, the garbage
// collector and the memory of production. javaOptions is a variable that overrides
// Java's command line.
var javaOptions = []string{"_JAVA_OPTIONS=-XX:TieredStopAtLevel=4 -XX:-UseSerialGC -XX:+UseG1GC -Xmx2g"}

// nodeSettings are the defaults of Cassandra 5.0 with a heap of 2 GiB.
const nodeSettings = `
memtable_heap_space: 512MiB
memtable_offheap_space: 512MiB
commitlog_total_space: 8192MiB
file_cache_size: 512MiB
networking_cache_size: 128MiB
key_cache_size: 100MiB
prepared_statements_cache_size: 10MiB
native_transport_max_threads: 128
concurrent_reads: 32
concurrent_writes: 32
compaction_throughput: 64MiB/s
`

// javaPatience is how long a Java process may take to start on a busy machine.
const javaPatience = 5 * time.Minute

const kairosConfig = `
kairosdb.jetty.address: "127.0.0.1"
kairosdb.jetty.port: %s
kairosdb.jetty.static_web_root: "webroot"
kairosdb.telnetserver.address: "127.0.0.1"
kairosdb.telnetserver.port: %s
kairosdb.query_cache.cache_dir: "cache"
kairosdb.hostname: "bench"
kairosdb.service.reporter: "<disabled>"
kairosdb.service.datastore: "org.kairosdb.datastore.cassandra.CassandraModule"
kairosdb.datastore.cassandra.table_create_with.data_points: ""
kairosdb.datastore.cassandra.write_cluster.keyspace: "kairosdb"
kairosdb.datastore.cassandra.write_cluster.cql_host_list: ["%s:9042"]
kairosdb.datastore.cassandra.write_cluster.read_consistency_level: "ONE"
kairosdb.datastore.cassandra.write_cluster.write_consistency_level: "ONE"
`

func (kairosTarget) start(ctx context.Context, dir string, _ mode) (server, error) {
	node, ip, err := startNode(ctx, filepath.Join(dir, "cassandra"))
	if err != nil {
		return nil, err
	}
	k, err := startKairosDB(ctx, filepath.Join(dir, "kairosdb"), ip)
	if err != nil {
		node.kill()
		return nil, err
	}
	k.under, k.cassandra = node, filepath.Join(dir, "cassandra")
	return k, nil
}

// startKairosDB starts a KairosDB over the node at ip.
func startKairosDB(ctx context.Context, home, ip string) (*kairosDB, error) {
	addrs, err := freeAddrs(2)
	if err != nil {
		return nil, err
	}
	k := &kairosDB{varve: &varve{http: addrs[0], line: addrs[1]}}
	if err := os.MkdirAll(filepath.Join(home, "conf"), 0o755); err != nil {
		return nil, err
	}
	config := fmt.Sprintf(kairosConfig, portOf(k.http), portOf(k.line), ip)
	if err := os.WriteFile(filepath.Join(home, "conf", "kairosdb.conf"), []byte(config), 0o644); err != nil {
		return nil, err
	}
	if k.process, err = startIn(ctx, javaOptions, filepath.Join("scripts", "kairosdb.sh"), "run", home); err != nil {
		return nil, err
	}
	if err := k.awaitReady(javaPatience, answers(ctx, "http://"+k.http+"/api/v1/health/check")); err != nil {
		k.kill()
		return nil, err
	}
	return k, nil
}

// nodes counts the started nodes.
var nodes atomic.Int64

// startNode starts a node of Cassandra on an address of its own, because all nodes
// have the same port.
func startNode(ctx context.Context, dir string) (node *process, ip string, err error) {
	ip = fmt.Sprintf("127.%d.%d.%d", os.Getpid()/250%98+100, os.Getpid()%250+1, nodes.Add(1)%250+1)
	settings := dir + ".yaml"
	if err := os.WriteFile(settings, []byte(nodeSettings), 0o644); err != nil {
		return nil, "", err
	}
	node, err = startIn(ctx, javaOptions, filepath.Join("scripts", "cassandra.sh"), "run", "--dir", dir, "--ip", ip, "--heap", "2g", "--yaml", settings)
	if err != nil {
		return nil, "", err
	}
	return node, ip, node.awaitReady(javaPatience, func() error { return listens(ip + ":9042") })
}

// listens returns an error if nobody accepts connections at addr.
func listens(addr string) error {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err == nil {
		c.Close()
	}
	return err
}

func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// dataDirs returns none: points that Cassandra has not flushed are in its log.
func (k *kairosDB) dataDirs() []string { return nil }

func (k *kairosDB) send(ctx context.Context, w workload, as form, n int) error {
	k.sent = w
	return k.varve.send(ctx, w, as, n)
}

// stored asks for the points of the last series: KairosDB does not report how many
// points it has written, but writes them in the order of arrival. The other series
// are verified later.
func (k *kairosDB) stored(ctx context.Context) (int64, error) {
	w := k.sent
	last := question{kind: raw, metric: w.metrics() - 1, host: w.hosts - 1, startMS: w.startMS, endExcl: w.endMS()}
	text, err := k.request(last).do(ctx)
	if err != nil {
		return 0, err
	}
	a, err := k.read(last, text)
	if err != nil {
		return 0, err
	}
	return int64(a.size()) * int64(w.series()), work.Pause(ctx, time.Second)
}

// settle waits until both processes are idle.
func (k *kairosDB) settle(ctx context.Context) error {
	return k.awaitQuiet(ctx, k.cassandra, time.Second, time.Minute)
}

// flush has nothing to do: written points are visible.
func (k *kairosDB) flush(context.Context) error { return nil }
