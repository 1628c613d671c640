package originals

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

var rings = flag.Bool("originals.rings", false, "also start rings of several nodes and of each version")

func TestKairosDBOnH2(t *testing.T) {
	k := StartKairosDB(t, KairosDBOptions{})
	checkPutAndQuery(t, k)
	k.Stop()
	if err := k.healthy(); err == nil {
		t.Error("it still answers after Stop")
	}
}

func TestKairosDBOnCassandra(t *testing.T) {
	address := Cassandra(t)
	k := StartKairosDB(t, KairosDBOptions{
		Cassandra: []string{address}, RowTimeUnit: "SECONDS", RowWidth: 3600, TagIndex: `["*"]`, CompactStorage: true,
	})
	dropAfterTest(t, address, k.Keyspace)
	checkPutAndQuery(t, k)
	k.Kill()
	k.Start()
	checkPutAndQuery(t, k)

	session := connect(t, address)
	spec := map[string]string{}
	rows := session.Query("SELECT name, value FROM " + k.Keyspace + ".spec WHERE spec_type = 'cluster_config'").Iter()
	for name, value := "", ""; rows.Scan(&name, &value); {
		spec[name] = value
	}
	if err := rows.Close(); err != nil {
		t.Fatal(err)
	}
	if spec["row_width"] != "3600" || spec["row_time_unit"] != "SECONDS" {
		t.Errorf("the keyspace was made with %v", spec)
	}
}

// checkPutAndQuery sends a point and waits until a query returns it.
func checkPutAndQuery(t *testing.T, k *KairosDB) {
	t.Helper()
	if status, body := post(t, k.URL+"/api/v1/datapoints", `[{"name":"m","timestamp":1000,"value":7,"tags":{"host":"a"}}]`); status != http.StatusNoContent {
		t.Fatalf("put: %d %s", status, body)
	}
	deadline := time.Now().Add(time.Minute)
	for {
		status, body := post(t, k.URL+"/api/v1/datapoints/query", `{"start_absolute":0,"end_absolute":2000,"metrics":[{"name":"m"}]}`)
		if status == http.StatusOK && strings.Contains(body, `"values":[[1000,7]]`) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("query: %d %s", status, body)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	response, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

func connect(t *testing.T, address string) *gocql.Session {
	t.Helper()
	cluster := gocql.NewCluster(address)
	cluster.Timeout = 30 * time.Second
	cluster.ConnectTimeout = 10 * time.Second
	session, err := cluster.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	return session
}

func dropAfterTest(t *testing.T, address, keyspace string) {
	session := connect(t, address)
	t.Cleanup(func() {
		if err := session.Query("DROP KEYSPACE IF EXISTS " + keyspace).Exec(); err != nil {
			t.Error(err)
		}
	})
}

func TestSharedCassandra(t *testing.T) {
	var version string
	if err := connect(t, Cassandra(t)).Query("SELECT release_version FROM system.local").Scan(&version); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(version, "5.0.") {
		t.Errorf("release %s, want 5.0", version)
	}
}

// A ring is started, its nodes are killed, paused and restarted, and it recovers.
func TestCluster(t *testing.T) {
	if !*rings {
		t.Skip("*** SKIPPED: rings of several Cassandra nodes; run this package with -originals.rings ***")
	}
	for _, o := range []ClusterOptions{
		{Nodes: 3},
		{Version: "4.1.10"},
		{YAML: "authenticator: PasswordAuthenticator\nauthorizer: CassandraAuthorizer"},
	} {
		t.Run(fmt.Sprintf("%s/%d/%d", o.Version, o.Nodes, len(o.YAML)), func(t *testing.T) {
			c := StartCluster(t, o)
			checkPeers(t, c, o.YAML != "")
			last := c.Nodes[len(c.Nodes)-1]
			last.Pause()
			last.Resume()
			last.Kill()
			if err := cqlAnswers(last.Address); err == nil {
				t.Error("a killed node answers")
			}
			last.Start()
			checkPeers(t, c, o.YAML != "")
			c.Stop()
		})
	}
}

// Nodes are in their configured data centres, and their clocks follow SetClock, both before
// the start and after it.
func TestDatacentersAndClocks(t *testing.T) {
	if !*rings {
		t.Skip("*** SKIPPED: rings of several Cassandra nodes; run this package with -originals.rings ***")
	}
	for _, version := range []string{"5.0.8", "4.1.10"} {
		t.Run(version, func(t *testing.T) {
			in := []string{"here", "there"}
			c := StartCluster(t, ClusterOptions{Version: version, Nodes: 2, Datacenters: in, Clocks: true})
			for i, n := range c.Nodes {
				// In ascending order: a node's now() never goes back.
				n.SetClock(-time.Hour)
				n.Restart()
				for _, ahead := range []time.Duration{-time.Hour, 0, 40 * time.Second} {
					n.SetClock(ahead)
					checkNode(t, n, in[i], ahead)
				}
			}
		})
	}
}

func checkNode(t *testing.T, n *Node, datacenter string, ahead time.Duration) {
	t.Helper()
	cluster := gocql.NewCluster(n.Address)
	cluster.HostFilter = gocql.HostFilterFunc(func(h *gocql.HostInfo) bool { return h.ConnectAddress().String()+":9042" == n.Address })
	cluster.Timeout, cluster.ConnectTimeout = 10*time.Second, 10*time.Second
	session, err := cluster.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	var in string
	var ms int64
	before := time.Now()
	if err := session.Query("SELECT data_center, toUnixTimestamp(now()) FROM system.local").Scan(&in, &ms); err != nil {
		t.Fatal(err)
	}
	if in != datacenter {
		t.Errorf("%s is in data centre %s, want %s", n.Address, in, datacenter)
	}
	now := time.UnixMilli(ms).Add(-ahead)
	if now.Before(before.Add(-time.Second)) || now.After(time.Now().Add(time.Second)) {
		t.Errorf("%s: the clock is %v ahead, want %v", n.Address, time.Until(now)+ahead, ahead)
	}
}

// checkPeers checks which peers the nodes report.
func checkPeers(t *testing.T, c *Cluster, login bool) {
	t.Helper()
	cluster := gocql.NewCluster(c.Addresses()...)
	cluster.ConnectTimeout = 10 * time.Second
	cluster.Timeout = 10 * time.Second
	if login {
		cluster.Authenticator = gocql.PasswordAuthenticator{Username: "cassandra", Password: "cassandra"}
	}
	session, err := cluster.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	// A restarted node answers before gossip has told it of all peers.
	deadline := time.Now().Add(30 * time.Second)
	for {
		var peers int
		if err := session.Query("SELECT count(*) FROM system.peers_v2").Scan(&peers); err != nil {
			t.Fatal(err)
		}
		if peers == len(c.Nodes)-1 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d peers in a ring of %d", peers, len(c.Nodes))
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// The error of a failed start names the cause.
func TestStartThatFails(t *testing.T) {
	dir := t.TempDir()
	c := newChild(t, "sh", filepath.Join(dir, "log"), "/bin/sh", "-c", "echo because; exit 1")
	err := c.start(20*time.Second, func() error { return os.ErrDeadlineExceeded })
	if err == nil || !strings.Contains(err.Error(), "because") {
		t.Errorf("%v does not show the log", err)
	}
	c = newChild(t, "sleep", filepath.Join(dir, "log2"), "/bin/sleep", "60")
	if err := c.start(200*time.Millisecond, func() error { return os.ErrDeadlineExceeded }); err == nil {
		t.Error("a process that never is ready was started")
	}
	select {
	case <-c.ended:
	default:
		t.Error("the process goes on")
	}
}
