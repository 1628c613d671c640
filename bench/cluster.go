package main

import (
	"context"
	"path/filepath"
	"time"
)

// clusterTarget is Varve over a node of Cassandra, in KairosDB's tables.
type clusterTarget struct{ binary string }

// overCassandra is a running clusterTarget. Its costs are those of both
// processes.
type overCassandra struct {
	*varve
	cassandra string // directory
	ip        string // of the node
	had       int64  // points in Cassandra before the last workload
}

func (clusterTarget) name() string { return "varve-cassandra" }

func (t clusterTarget) version(ctx context.Context) (string, error) {
	version, err := varveTarget(t).version(ctx)
	if err != nil {
		return "", err
	}
	return version + ", on Cassandra 5.0.8", fetchJars(ctx, "cassandra.sh")
}

func (t clusterTarget) start(ctx context.Context, dir string, how mode) (server, error) {
	addrs, err := freeAddrs(3)
	if err != nil {
		return nil, err
	}
	o := &overCassandra{
		varve:     &varve{dir: filepath.Join(dir, "data"), http: addrs[0], line: addrs[1], pprof: addrs[2]},
		cassandra: filepath.Join(dir, "cassandra"),
	}
	node, ip, err := startNode(ctx, o.cassandra)
	if err != nil {
		return nil, err
	}
	args := []string{"serve", "--store", "cassandra", "--cassandra-hosts", ip,
		"--cassandra-schema-create", "keyspace", "--cassandra-spool-linger", "60s",
		"--data-dir", o.dir, "--http-addr", o.http, "--telnet-addr", o.line, "--carbon-addr=", "--pickle-addr=", "--server-pprof-addr", o.pprof}
	switch how {
	case uncached:
		args = append(args, "--cassandra-read-chunk-cache-bytes", "0")
	case roomy:
		args = append(args, "--cassandra-spool-max-memory", "1GiB")
	}
	o.ip = ip
	o.process, err = startProcess(ctx, t.binary, args...)
	if err != nil {
		node.kill()
		return nil, err
	}
	o.under = node
	return o, o.awaitReady(javaPatience, answers(ctx, "http://"+o.http+"/api/v1/metricnames?prefix=none")) // the page fails until the keyspace is open
}

// dataDirs returns none: points that Cassandra has not flushed are in its log.
func (o *overCassandra) dataDirs() []string { return nil }

func (o *overCassandra) send(ctx context.Context, w workload, as form, n int) (err error) {
	o.had = 0
	if o.had, err = o.stored(ctx); err != nil {
		return err
	}
	return o.varve.send(ctx, w, as, n)
}

// stored counts the points of the last workload that have reached Cassandra.
func (o *overCassandra) stored(ctx context.Context) (int64, error) {
	if err := o.flush(ctx); err != nil {
		return 0, err
	}
	n, err := o.metric(ctx, `varve_spool_drained_samples_total{cluster="write_cluster"}`)
	return int64(n) - o.had, err
}

// flush returns when the spool is empty.
func (o *overCassandra) flush(ctx context.Context) error {
	_, err := o.post("/admin/flush", nil).do(ctx)
	return err
}

// settle waits until both processes are idle.
func (o *overCassandra) settle(ctx context.Context) error {
	return o.awaitQuiet(ctx, o.cassandra, time.Second, time.Minute)
}
