package originals

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// kairosStartLimit is how long KairosDB may take until it answers. On an idle
// machine it takes 2.5 s.
const kairosStartLimit = 2 * time.Minute

// KairosDBOptions are the options of KairosDB 1.3.0-1. The zero value runs it on its
// embedded store, H2.
type KairosDBOptions struct {
	Cassandra []string // hosts and ports, all with the same port; empty: H2
	Keyspace  string   // default: a new one, which is not dropped

	// RowTimeUnit and RowWidth are the row settings of a keyspace that is created:
	// MILLISECONDS or SECONDS, and the width of a row in this unit. Default:
	// KairosDB's, three weeks in milliseconds.
	RowTimeUnit string
	RowWidth    int64

	// TagIndex is the value of tag_indexed_row_key_lookup_metrics in HOCON:
	// ["*"], ["m"] or { "my.metric": [], "other.metric": ["host"] }.
	TagIndex string

	CompactStorage bool // create data_points as KairosDB does by default
	Rollups        bool

	// Settings override all others. A key is a path below "kairosdb", and a value is
	// HOCON, for example "query_cache.keep_cache_files": "true".
	Settings map[string]string
}

// A KairosDB is a process of KairosDB.
type KairosDB struct {
	URL      string // http://host:port, without a slash
	Telnet   string // host and port
	Keyspace string // empty with H2
	Dir      string // its working directory; its configuration is conf/kairosdb.conf

	t     testing.TB
	child *child
}

// StartKairosDB starts KairosDB and waits until its store answers. It ends with
// the test.
func StartKairosDB(t testing.TB, o KairosDBOptions) *KairosDB {
	t.Helper()
	script := need(t, "kairosdb.sh")
	if len(o.Cassandra) > 0 && o.Keyspace == "" {
		o.Keyspace = fmt.Sprintf("kairos_%d_%d", os.Getpid(), rand.Uint32())
	}
	k := &KairosDB{t: t, Keyspace: o.Keyspace, Dir: t.TempDir()}
	k.child = newChild(t, "KairosDB", filepath.Join(k.Dir, "log", "kairosdb.log"), script, "run", k.Dir)

	// Another process may take a free port before KairosDB does.
	var err error
	for range 3 {
		if err = k.configure(o); err == nil {
			err = k.child.start(kairosStartLimit, k.healthy)
		}
		if !errors.Is(err, errEnded) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Stop shuts KairosDB down. Points that wait in memory may be lost, as KairosDB does not
// flush them.
func (k *KairosDB) Stop() { k.child.stop() }

// Kill ends KairosDB as kill -9 does.
func (k *KairosDB) Kill() { k.child.kill() }

// Start starts KairosDB again, with the same store, settings and ports.
func (k *KairosDB) Start() {
	k.t.Helper()
	if err := k.child.start(kairosStartLimit, k.healthy); err != nil {
		k.t.Fatal(err)
	}
}

// Script returns the command line of another command of KairosDB, such as "export",
// with the same configuration. The server must be stopped.
func (k *KairosDB) Script(command ...string) []string {
	return append(slices.Clone(k.child.command), command...)
}

func (k *KairosDB) healthy() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, k.URL+"/api/v1/health/check", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		return fmt.Errorf("health check: %s", response.Status)
	}
	return nil
}

// configure chooses ports and writes the configuration.
func (k *KairosDB) configure(o KairosDBOptions) error {
	host, ports, err := freePorts(2)
	if err != nil {
		return err
	}
	k.URL, k.Telnet = "http://"+net.JoinHostPort(host, ports[0]), net.JoinHostPort(host, ports[1])
	var b strings.Builder
	set := func(path, value string) { fmt.Fprintf(&b, "kairosdb.%s: %s\n", path, value) }
	set("jetty.address", quoted(host))
	set("jetty.port", ports[0])
	set("jetty.static_web_root", `"webroot"`)
	set("telnetserver.address", quoted(host))
	set("telnetserver.port", ports[1])
	set("query_cache.cache_dir", `"cache"`)
	set("hostname", `"kairos-test"`)
	// Without this, KairosDB's own metrics would be among the test's.
	set("service.reporter", `"<disabled>"`)
	// With this queue, points become visible soon.
	set("queue_processor.class", `"org.kairosdb.core.queue.MemoryQueueProcessor"`)
	set("queue_processor.min_batch_size", "1")
	set("queue_processor.min_batch_wait", "20")
	o.store(set)
	if o.Rollups {
		set("service.rollups", `"org.kairosdb.rollup.RollUpModule"`)
		set("rollups.server_assignment.check_update_delay_millseconds", "1000")
	}
	for path, value := range o.Settings {
		set(path, value)
	}
	conf := filepath.Join(k.Dir, "conf")
	if err := os.MkdirAll(conf, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(conf, "kairosdb.conf"), []byte(b.String()), 0o644)
}

func (o KairosDBOptions) store(set func(path, value string)) {
	if len(o.Cassandra) == 0 {
		set("service.datastore", `"org.kairosdb.datastore.h2.H2Module"`)
		set("datastore.h2.database_path", `"h2db"`)
		return
	}
	set("service.datastore", `"org.kairosdb.datastore.cassandra.CassandraModule"`)
	if !o.CompactStorage {
		set("datastore.cassandra.table_create_with.data_points", `""`)
	}
	hosts := make([]string, len(o.Cassandra))
	for i, host := range o.Cassandra {
		hosts[i] = quoted(host)
	}
	cluster := func(key, value string) { set("datastore.cassandra.write_cluster."+key, value) }
	cluster("keyspace", quoted(o.Keyspace))
	cluster("cql_host_list", "["+strings.Join(hosts, ", ")+"]")
	cluster("replication", `"{'class': 'SimpleStrategy','replication_factor' : 1}"`)
	cluster("read_consistency_level", `"ONE"`)
	cluster("write_consistency_level", `"ONE"`)
	cluster("protocol_compression", `"NONE"`)
	if o.TagIndex != "" {
		cluster("tag_indexed_row_key_lookup_metrics", o.TagIndex)
	}
	if o.RowTimeUnit != "" {
		cluster("row_time_unit", quoted(o.RowTimeUnit))
	}
	if o.RowWidth > 0 {
		cluster("row_width", fmt.Sprint(o.RowWidth))
	}
}

func quoted(text string) string { return `"` + text + `"` }

// freePorts returns n ports of a loopback address that are free, and stay so until KairosDB has
// started: other programs get theirs at 127.0.0.1.
func freePorts(n int) (host string, ports []string, err error) {
	host = fmt.Sprintf("127.78.%d.%d", rand.N(256), 1+rand.N(254))
	for range n {
		l, err := net.Listen("tcp", host+":0")
		if err != nil {
			return "", nil, err
		}
		defer l.Close() // all stay open until all are chosen
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			return "", nil, err
		}
		ports = append(ports, port)
	}
	return host, ports, nil
}
