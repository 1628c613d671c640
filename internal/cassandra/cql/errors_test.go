package cql_test

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/store"
)

func openWire(t *testing.T, nodes []*wireNode, change func(*cql.Config)) (*cql.Session, *prometheus.Registry) {
	t.Helper()
	var addresses []string
	for _, n := range nodes {
		addresses = append(addresses, n.address())
	}
	config := cqltest.Config(addresses...)
	config.Keyspace = "ks"
	config.Attempts = 3
	config.RetryPause = time.Millisecond
	if change != nil {
		change(&config)
	}
	registry := prometheus.NewRegistry()
	s := cqltest.Open(t, config, cql.Options{Registerer: registry, Dial: nodes[0].wires.dial})
	// A session that is closed just when the driver has reconnected leaves a goroutine behind:
	// see refreshLeaks in cqltest.
	t.Cleanup(func() { time.Sleep(time.Minute) })
	until(t, time.Minute, "connected with all nodes", func() bool { return s.State().Nodes == len(nodes) })
	return s, registry
}

// wireErrors are the errors of the protocol: what each becomes, after how many
// attempts when it stays, and whether it is over when the next attempt succeeds.
var wireErrors = []struct {
	name     string
	reply    reply
	want     string // in the text of the error
	reason   cql.Reason
	attempts int
	tombs    bool
}{
	// Consistency, received, wanted: as each of the frames has them.
	{"read timeout", reply{code: codeReadTimeout, message: "Operation timed out", extra: []byte{0, 6, 0, 0, 0, 1, 0, 0, 0, 2, 0}}, "no answer in time", "", 3, false},
	{"write timeout", reply{code: codeWriteTimeout, message: "Operation timed out", extra: appendString([]byte{0, 6, 0, 0, 0, 1, 0, 0, 0, 2}, "UNLOGGED_BATCH")}, "no answer in time", "", 3, false},
	{"unavailable", reply{code: codeUnavailable, message: "Cannot achieve consistency level", extra: []byte{0, 6, 0, 0, 0, 2, 0, 0, 0, 1}}, "too few replicas", "", 3, false},
	{"overloaded", reply{code: codeOverloaded, message: "Too many requests in flight"}, "overloaded", "", 3, false},
	{"bootstrapping", reply{code: codeBootstrapping, message: "Bootstrapping"}, "Bootstrapping", "", 3, false},
	{"server error", reply{code: codeServer, message: "java.lang.NullPointerException"}, "NullPointer", "", 3, false},
	{"truncate", reply{code: codeTruncate, message: "Error during truncate"}, "truncate", "", 3, false},
	{"write failure", reply{code: codeWriteFailed, message: "Operation failed", extra: appendString([]byte{0, 6, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1}, "SIMPLE")}, "Operation failed", "", 3, false},
	{"read failure", reply{code: codeReadFailure, message: "Operation failed", extra: []byte{0, 6, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0}}, "Operation failed", "", 3, false},
	{"outcome of a transaction unknown", reply{code: codeCASUnknown, message: "CAS operation result is unknown", extra: []byte{0, 8, 0, 0, 0, 1, 0, 0, 0, 2}}, "no answer in time", "", 3, false},

	{"tombstones", reply{code: codeReadFailure, message: "Scanned over 100001 tombstones during query", extra: []byte{0, 6, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0}}, "tombstone_failure_threshold", "", 1, true},
	{"batch too large", reply{code: codeInvalid, message: "Batch too large"}, "batch_size_fail_threshold", cql.BatchTooLarge, 1, false},
	{"mutation too large", reply{code: codeInvalid, message: "Mutation of 17MiB is too large for the maximum size of 16MiB"}, "commitlog_segment_size", cql.RequestTooLarge, 1, false},
	{"oversized mutation", reply{code: codeServer, message: "MutationExceededMaxSizeException: Encountered an oversized mutation (17000000/16777216) for keyspace: ks"}, "commitlog_segment_size", cql.RequestTooLarge, 1, false},
	{"guardrail of values", reply{code: codeInvalid, message: "Guardrail column_value_size violated: Value of column 'value' has size 5.000KiB, this exceeds the failure threshold of 4.000KiB."}, "shorter values", cql.ValueTooLarge, 1, false},
	{"guardrail", reply{code: codeInvalid, message: "Guardrail partition_size violated: Partition ks.t:1 has size 2MiB"}, "lift this guardrail", cql.GuardrailHit, 1, false},
	{"TTL", reply{code: codeInvalid, message: "Request on table ks.t with ttl of 630720000 seconds exceeds maximum supported expiration date"}, "shorter time-to-live", cql.TTLTooLong, 1, false},
	{"unauthorized", reply{code: codeUnauthorized, message: "User u has no MODIFY permission"}, "grant the user", cql.Unauthorized, 1, false},
	{"syntax", reply{code: codeSyntax, message: "line 1:0 no viable alternative"}, "no viable", cql.BadSyntax, 1, false},
	{"no table", reply{code: codeInvalid, message: "unconfigured table t"}, "create the table", cql.NoSuchTable, 1, false},
	{"options", reply{code: codeConfig, message: "Unable to find compaction strategy class"}, "compaction", cql.BadConfiguration, 1, false},
	{"already there", reply{code: codeAlreadyExists, message: "Cannot add existing table", extra: appendString(appendString(nil, "ks"), "t")}, "existing", cql.AlreadyExists, 1, false},
	{"protocol", reply{code: codeProtocol, message: "Invalid value for the paging state"}, "paging state", cql.Invalid, 1, false},
	{"a connection that breaks", reply{hangUp: true}, "no node answers", "", 3, false},
}

// TestWireErrors: each error of the protocol becomes the right error of ours, of
// reads, writes and batches; what may pass is tried again as it was, with the
// same timestamp, and what will not is not.
func TestWireErrors(t *testing.T) { synctest.Test(t, testWireErrors) }

func testWireErrors(t *testing.T) {
	nodes := startWire(t, 1)
	n := nodes[0]
	s, _ := openWire(t, nodes, func(c *cql.Config) { c.OutageGrace = 0 })
	key := []byte("k")
	operations := []struct {
		name string
		st   *cql.Statement
		do   func() error
	}{
		{"write", insert, func() error { return s.Exec(t.Context(), insert, 1000, key, key, key) }},
		{"batch", insert, func() error {
			return s.Batch(t.Context(), 1000, []cql.Entry{{Statement: insert, Args: []any{key, key, key}}, {Statement: insert, Args: []any{key, []byte("2"), key}}})
		}},
		{"read", selectAll, func() error {
			_, err := s.One(t.Context(), selectAll, []any{key}, nil, nil, nil)
			return err
		}},
	}
	for _, c := range wireErrors {
		for _, op := range operations {
			if c.reply.hangUp && op.name != "write" {
				continue
			}
			until(t, time.Minute, "connected", func() bool { return s.State().Connected && s.State().Nodes == 1 })
			n.says(func(string) reply { return c.reply })
			err := op.do()
			var unavailable *store.UnavailableError
			var refused *cql.RefusedError
			var tombstones *cql.TombstoneError
			switch {
			case err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "table t"):
				t.Errorf("%s, %s: %v, want an error with %q", c.name, op.name, err, c.want)
			case c.tombs:
				if !errors.As(err, &tombstones) {
					t.Errorf("%s, %s: %T: %v", c.name, op.name, err, err)
				}
			case c.reason != "":
				passes := c.reason == cql.NoSuchTable || c.reason == cql.Unauthorized
				if !errors.As(err, &refused) || refused.Reason != c.reason || store.Passes(err) != passes {
					t.Errorf("%s, %s: %T: %v", c.name, op.name, err, err)
				}
			case !errors.As(err, &unavailable):
				t.Errorf("%s, %s: %T: %v", c.name, op.name, err, err)
			}
			if c.reply.hangUp {
				continue // may not reach the node at all
			}
			if asked := n.asked(op.st); len(asked) != c.attempts {
				t.Errorf("%s, %s: tried %d times, want %d", c.name, op.name, len(asked), c.attempts)
			}
			if c.attempts == 1 {
				continue
			}
			// Once only: the next attempt is the same request, and succeeds.
			var times atomic.Int32
			n.says(func(string) reply {
				if times.Add(1) == 1 {
					return c.reply
				}
				return reply{}
			})
			if err := op.do(); err != nil {
				t.Errorf("%s, %s: an error that passes: %v", c.name, op.name, err)
			}
			if asked := n.asked(op.st); len(asked) != 2 || !bytes.Equal(asked[0], asked[1]) {
				t.Errorf("%s, %s: the second attempt is not like the first: %x", c.name, op.name, asked)
			}
		}
	}
}

// TestWireForgets: a node that forgot a statement is told again, unseen.
func TestWireForgets(t *testing.T) { synctest.Test(t, testWireForgets) }

func testWireForgets(t *testing.T) {
	nodes := startWire(t, 1)
	s, _ := openWire(t, nodes, nil)
	var times atomic.Int32
	nodes[0].says(func(text string) reply {
		if times.Add(1) == 1 {
			return reply{code: codeUnprepared, message: "unprepared", extra: appendString(nil, text)}
		}
		return reply{}
	})
	if err := s.Exec(t.Context(), insert, 1, []byte("k"), []byte("k"), []byte("k")); err != nil {
		t.Error(err)
	}
}

// TestWirePacked: a batch that this package writes is what the driver would have sent. That
// is so after a node forgot a statement, too.
func TestWirePacked(t *testing.T) { synctest.Test(t, testWirePacked) }

func testWirePacked(t *testing.T) {
	nodes := startWire(t, 1)
	s, _ := openWire(t, nodes, nil)
	short, empty, texts := cql.Raw("short"), cql.Raw{}, []string{"key", "raw", "short", "", "text"}
	values := [][]any{ // each: what is packed, and what the driver takes for the same
		{[]byte("key"), &texts[0]}, {cql.Raw("raw"), &texts[1]}, {&short, &texts[2]}, {&empty, &texts[3]}, {"text", &texts[4]}, {[]byte(nil), nil},
	}
	for _, statements := range [][]*cql.Statement{{insert}, {insert, insertTTL}, {insertTTL, insert, insertAt1}} {
		var batches [2][]cql.Entry
		for i := range 50 {
			st := statements[i*i%7%len(statements)]
			for which := range batches {
				var args []any
				for j := range strings.Count(st.Text, "?") {
					args = append(args, values[(i+j)%len(values)][which])
				}
				batches[which] = append(batches[which], cql.Entry{Statement: st, Args: args})
			}
		}
		forgotten := false
		nodes[0].says(func(text string) reply {
			if !forgotten {
				forgotten = true
				return reply{code: codeUnprepared, message: "unprepared", extra: appendString(nil, text)}
			}
			return reply{}
		})
		if !cql.Packs(batches[0]) || cql.Packs(batches[1]) {
			t.Error("the one of pointers is packed, or the one of values is not")
		}
		for which := range batches {
			if err := s.Batch(t.Context(), 1000, batches[which]); err != nil {
				t.Fatal(err)
			}
		}
		asked := nodes[0].asked(batches[0][0].Statement)
		if len(asked) != 3 || !bytes.Equal(asked[0], asked[2]) || !bytes.Equal(asked[1], asked[2]) {
			t.Errorf("%d statements, %d requests:\n%x", len(statements), len(asked), asked)
		}
	}
}

// TestWireOtherNode: what one node does not want another one gets at once, within
// one attempt.
func TestWireOtherNode(t *testing.T) { synctest.Test(t, testWireOtherNode) }

func testWireOtherNode(t *testing.T) {
	nodes := startWire(t, 2)
	s, registry := openWire(t, nodes, nil)
	nodes[0].says(func(string) reply { return reply{code: codeOverloaded, message: "Too many requests"} })
	for range 20 {
		if err := s.Exec(t.Context(), insert, 1, []byte("k"), []byte("k"), []byte("k")); err != nil {
			t.Fatal(err)
		}
	}
	if asked := len(nodes[0].asked(insert)); asked == 0 {
		t.Error("the node that is overloaded was never asked")
	}
	if n := metric(t, registry, "varve_cql_attempts_total", map[string]string{"statement": "insert", "result": "ok"}); n != 20 {
		t.Errorf("%v of 20 statements took one attempt", n)
	}
	limit := metric(t, registry, "varve_cql_node_limit", map[string]string{"node": nodes[0].address(), "kind": "write"})
	if most := cql.DefaultConfig().WritesInFlight; !(limit < float64(most)) {
		t.Errorf("the node that is overloaded may have %v of %d statements", limit, most)
	}
}

// TestWireDisagreement: nodes that keep different schemas, and two that agree
// after a while.
func TestWireDisagreement(t *testing.T) { synctest.Test(t, testWireDisagreement) }

func testWireDisagreement(t *testing.T) {
	defer cql.SetSchemaAgreement(time.Second)()
	nodes := startWire(t, 2)
	s, _ := openWire(t, nodes, nil)
	set := func(version byte) {
		nodes[1].mu.Lock()
		nodes[1].schema = version
		nodes[1].mu.Unlock()
	}
	set(2)
	create := &cql.Statement{Name: "create", Text: "CREATE TABLE t (key blob PRIMARY KEY)"}
	err := s.Change(t.Context(), create)
	var unavailable *store.UnavailableError
	if !errors.As(err, &unavailable) || !strings.Contains(err.Error(), "do not agree about the schema") {
		t.Errorf("different schemas: %v", err)
	}
	if n := len(nodes[0].asked(create)) + len(nodes[1].asked(create)); n != 0 {
		t.Errorf("the schema was changed %d times although nodes do not agree", n)
	}
	defer cql.SetSchemaAgreement(time.Minute)()
	time.AfterFunc(300*time.Millisecond, func() { set(1) })
	if err := s.Change(t.Context(), create); err != nil {
		t.Errorf("nodes that agree after a while: %v", err)
	}
}

// TestWireFewNodes: with half of the nodes away the schema is not changed.
func TestWireFewNodes(t *testing.T) { synctest.Test(t, testWireFewNodes) }

func testWireFewNodes(t *testing.T) {
	defer cql.SetSchemaAgreement(time.Second)()
	nodes := startWire(t, 2)
	s, _ := openWire(t, nodes, nil)
	until(t, time.Minute, "connected", func() bool {
		nodes[1].mu.Lock()
		defer nodes[1].mu.Unlock()
		return len(nodes[1].conns) > 0
	})
	nodes[1].stop()
	until(t, time.Minute, "lost", func() bool {
		// The driver does not miss a connection that ends while it fills the pool of the node,
		// until a statement needs one.
		_ = s.Exec(t.Context(), insert, 1, []byte("k"), []byte("k"), []byte("k"))
		return s.State().Nodes == 1
	})
	create := &cql.Statement{Name: "create", Text: "CREATE TABLE t (key blob PRIMARY KEY)"}
	err := s.Change(t.Context(), create)
	var unavailable *store.UnavailableError
	if !errors.As(err, &unavailable) || !strings.Contains(err.Error(), "1 of 2 nodes") {
		t.Errorf("one of two nodes: %v", err)
	}
	if n := len(nodes[0].asked(create)); n != 0 {
		t.Errorf("the schema was changed %d times", n)
	}
}

// TestWireSlow: a statement that takes much longer than stall_after, alone at its
// node, is waited for: the node answers when it is asked whether it lives.
func TestWireSlow(t *testing.T) { synctest.Test(t, testWireSlow) }

func testWireSlow(t *testing.T) {
	const stall = time.Second
	nodes := startWire(t, 2)
	s, registry := openWire(t, nodes, func(c *cql.Config) {
		c.StallAfter, c.OutageGrace, c.ReadTimeout = stall, 0, 10*stall
		c.HedgeAfter = 0 // else another node would answer
	})
	for _, n := range nodes {
		n.says(func(string) reply { return reply{delay: 4 * stall} })
	}
	if _, err := s.One(t.Context(), selectAll, []any{[]byte("k")}, nil, nil, nil); err != nil {
		t.Error(err)
	}
	if n := len(nodes[0].asked(selectAll)) + len(nodes[1].asked(selectAll)); n != 1 {
		t.Errorf("a slow statement was sent %d times", n)
	}
	if n := metric(t, registry, "varve_cql_nodes_silent", nil); n != 0 {
		t.Errorf("%v nodes count as silent", n)
	}
}

// TestWireLostReplica: after a node was lost, a read at one that seems to wait for
// it is tried at another one. TestWireSlow shows that it is waited for otherwise.
func TestWireLostReplica(t *testing.T) { synctest.Test(t, testWireLostReplica) }

func testWireLostReplica(t *testing.T) {
	nodes := startWire(t, 3)
	s, registry := openWire(t, nodes, func(c *cql.Config) { c.StallAfter, c.HedgeAfter = time.Second, 0 })
	const waits = 8 * time.Second
	nodes[0].says(func(string) reply { return reply{delay: waits} })
	nodes[2].stop()
	until(t, time.Minute, "lost", func() bool { return s.State().Nodes == 2 })
	asked := 0 // of statements at the node that waits: it may not be chosen at first
	for i, end := 0, time.Now().Add(time.Minute); i < 6 || asked == 0 && time.Now().Before(end); i++ {
		start := time.Now()
		if _, err := s.One(t.Context(), selectAll, []any{[]byte{byte(i)}}, nil, nil, nil); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > waits/2 {
			t.Errorf("read %d took %v", i, took)
		}
		asked = len(nodes[0].asked(selectAll))
	}
	if asked == 0 {
		t.Error("the node that waits was never asked")
	}
	if n := metric(t, registry, "varve_cql_limit_cuts_total", map[string]string{"kind": "read"}); n > 0 {
		t.Errorf("the node that waits was cut %v times", n)
	}
}

// TestWireHedge: a read at a node that takes long is answered by another one, once.
// Writes are not hedged.
func TestWireHedge(t *testing.T) { synctest.Test(t, testWireHedge) }

func testWireHedge(t *testing.T) {
	nodes := startWire(t, 2)
	s, registry := openWire(t, nodes, func(c *cql.Config) { c.StallAfter = 30 * time.Second })
	var later atomic.Bool
	for _, n := range nodes {
		n.says(func(string) reply {
			if later.Swap(true) {
				return reply{}
			}
			return reply{delay: 5 * time.Second} // whichever node is asked first
		})
	}
	asked := func(st *cql.Statement) []int {
		return []int{len(nodes[0].asked(st)), len(nodes[1].asked(st))}
	}
	won := func() float64 {
		return metric(t, registry, "varve_cql_hedges_total", map[string]string{"result": "won"})
	}
	if _, err := s.One(t.Context(), selectAll, []any{[]byte("k")}, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	if got := asked(selectAll); got[0] != 1 || got[1] != 1 {
		t.Errorf("a slow read was sent %v times", got)
	}
	if n := won(); n != 1 {
		t.Errorf("%v hedges have won", n)
	}
	if n := metric(t, registry, "varve_cql_attempts_total", map[string]string{"statement": selectAll.Name, "result": "ok"}); n != 1 {
		t.Errorf("%v attempts are counted", n)
	}
	for _, n := range nodes {
		n.says(func(string) reply { return reply{delay: 300 * time.Millisecond} })
	}
	if err := s.Exec(t.Context(), insert, 1, []byte("k"), []byte("k"), []byte("k")); err != nil {
		t.Error(err)
	}
	if got := asked(insert); got[0]+got[1] != 1 {
		t.Errorf("a write was sent %v times", got)
	}
}

// TestWirePace: a node that answers above the goal is given fewer statements at
// once, and the other one more; when it is quick again it gets its share.
func TestWirePace(t *testing.T) { synctest.Test(t, testWirePace) }

func testWirePace(t *testing.T) {
	nodes := startWire(t, 2)
	s, registry := openWire(t, nodes, func(c *cql.Config) {
		c.LatencyGoal, c.WritesInFlight = 400*time.Millisecond, 16
	})
	var stop atomic.Bool
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop.Store(true)
	for range 32 {
		wg.Go(func() {
			for !stop.Load() {
				if err := s.Exec(t.Context(), insert, 1, []byte("k"), []byte("k"), []byte("k")); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	quick := func(string) reply { return reply{delay: 200 * time.Millisecond} }
	nodes[0].says(func(string) reply { return reply{delay: time.Second} })
	nodes[1].says(quick)
	limit := func() float64 {
		synctest.Wait() // the limit of all follows that of the node
		return metric(t, registry, "varve_cql_node_limit", map[string]string{"node": nodes[0].address(), "kind": "write"})
	}
	until(t, time.Minute, "given less", func() bool { return limit() == 4 })
	if n := metric(t, registry, "varve_cql_limit_cuts_total", map[string]string{"kind": "write", "cause": "latency"}); !(n > 0) {
		t.Errorf("%v cuts are counted", n)
	}
	if n := metric(t, registry, "varve_cql_in_flight_limit", map[string]string{"kind": "write"}); n > 20 {
		t.Errorf("%v statements may be in flight at a node for 4 and one for 16", n)
	}
	nodes[0].says(quick)
	until(t, time.Minute, "given as many again", func() bool { return limit() == 16 })
}
