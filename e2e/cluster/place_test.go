package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"varve/e2e/process"
	"varve/internal/originals"
)

// A place is a keyspace that varve processes work on.
type place struct {
	t        *testing.T
	nodes    *originals.Cluster
	keyspace string
	replicas int // of each partition, 0 is all nodes

	replication string         // of the keyspace, if replicas cannot express it
	more        []string       // flags of all processes, after all others
	clock       *process.Clock // of all processes; nil: the machine's
}

// flags returns the flags of all processes. Samples linger only briefly, so
// that Cassandra is busy.
func (p *place) flags(more ...string) []string {
	replicas := p.replicas
	if replicas == 0 {
		replicas = len(p.nodes.Nodes)
	}
	replication := p.replication
	if replication == "" {
		replication = fmt.Sprintf("{'class': 'SimpleStrategy', 'replication_factor': '%d'}", replicas)
	}
	flags := append([]string{
		"--store=cassandra",
		"--cassandra-hosts=" + strings.Join(p.nodes.Addresses(), ","),
		"--cassandra-keyspace=" + p.keyspace,
		"--cassandra-schema-create=keyspace",
		"--cassandra-schema-replication=" + replication,
		"--cassandra-schema-row-width=1200000", // 20 minutes: many rows
		"--cassandra-spool-linger=300ms",
	}, p.more...)
	return append(flags, more...)
}

// start starts a process. The process becomes ready whether Cassandra runs or
// not.
func (p *place) start(t *testing.T, dir string, more ...string) *process.Server {
	t.Helper()
	if p.clock != nil {
		return p.clock.Start(t, dir, p.flags(more...)...)
	}
	return process.Start(t, dir, p.flags(more...)...)
}

// ledger returns a ledger of points of the last hours: in finished rows and in
// current rows.
func (p *place) ledger(metric string) *ledger {
	return &ledger{metric: metric, series: 7, firstMS: time.Now().Add(-3*time.Hour).UnixMilli() / stepMS * stepMS}
}

// verify waits until all points are in Cassandra, and queries a new process.
func (p *place) verify(t *testing.T, ledgers []*ledger, writers ...*process.Server) {
	t.Helper()
	for _, s := range writers {
		p.drained(t, s, 2*time.Minute)
		if dropped := stateOf(t, s).Refused; len(dropped) > 0 {
			t.Errorf("samples were dropped: %+v", dropped)
		}
		defer func() {
			if t.Failed() {
				t.Logf("the log of a process:\n%s", s.Log.Tail())
			}
		}()
	}
	p.readBack(t, ledgers)
}

// readBack queries a new process, which has the flags in more.
func (p *place) readBack(t *testing.T, ledgers []*ledger, more ...string) {
	t.Helper()
	fresh := p.start(t, t.TempDir(), more...)
	defer fresh.Kill()
	connected(t, fresh)
	for _, l := range ledgers {
		numbers := l.all()
		for from := 0; from < numbers.to; from += 20_000 {
			part := span{from, min(from+20_000, numbers.to)}
			if err := l.check(t.Context(), fresh, part); err != nil {
				t.Errorf("all points, by another process: %v", err)
			}
		}
		if err := l.checkEach(t.Context(), fresh, numbers); err != nil {
			t.Errorf("series by series, by another process: %v", err)
		}
		t.Logf("%s: %d points acknowledged and read back by another process, %d deleted, %d open", l.metric, l.count(stored), l.count(erased), l.count(open))
		if l.count(stored) == 0 {
			t.Errorf("%s: nothing was acknowledged", l.metric)
		}
	}
}

// drained waits until the spool of a process is empty.
func (p *place) drained(t *testing.T, s *process.Server, limit time.Duration) {
	t.Helper()
	began := time.Now()
	await(t, limit, "all points handed over", func() error {
		m, err := s.Metrics(t.Context())
		if err == nil && m[`varve_spool_samples{cluster="write_cluster"}`] > 0 {
			err = fmt.Errorf("%v points wait", m[`varve_spool_samples{cluster="write_cluster"}`])
		}
		return err
	})
	if took := time.Since(began); took > time.Second {
		t.Logf("drained after %v", took.Round(100*time.Millisecond))
	}
}

// connected waits until queries are answered.
func connected(t *testing.T, s *process.Server) {
	t.Helper()
	await(t, 2*time.Minute, "Cassandra reached", func() error {
		if why := stateOf(t, s).Degraded; why != "" {
			return errors.New(why)
		}
		return nil
	})
}

// A state is a process's report about Cassandra.
type state struct {
	Refusing, Degraded string
	Refused            []struct{ Reason, Last string } // samples that were dropped
}

func stateOf(t *testing.T, s *process.Server) (now state) {
	t.Helper()
	answer, err := s.Want(t.Context(), http.StatusOK, "GET", "/admin/cassandra", "")
	if err == nil {
		err = json.Unmarshal(answer, &now)
	}
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// wantDegraded checks that a process reports why Cassandra accepts nothing,
// since when, and how much waits, and that its health status is the given one.
func wantDegraded(t *testing.T, s *process.Server, health int) {
	t.Helper()
	await(t, time.Minute, "the outage told", func() error {
		if why := stateOf(t, s).Degraded; !strings.Contains(why, "since 2") || !strings.Contains(why, "wait for it in") {
			return fmt.Errorf("told: %q", why)
		}
		return nil
	})
	t.Logf("degraded: %s", stateOf(t, s).Degraded)
	var lines []string
	answer, err := s.Want(t.Context(), http.StatusOK, "GET", "/api/v1/health/status", "")
	if err == nil {
		err = json.Unmarshal(answer, &lines)
	}
	if err != nil || !slices.Contains(lines, "Datastore-Cassandra: FAIL") {
		t.Errorf("health status %v (%v)", lines, err)
	}
	if _, err := s.Want(t.Context(), health, "GET", "/api/v1/health/check", ""); err != nil {
		t.Error(err)
	}
}

// While no node answers, a query waits for outage_grace (2 s) from the beginning
// of the outage, which is noticed after stall_after (1 s) and the probes that
// follow. After that, queries fail at once.
const (
	failsWithin     = 5 * time.Second
	failsAtOnce     = time.Second
	noNodeAnswers   = "no node has answered since 2"
	questionsAtOnce = 5
)

// wantQuestionsFail checks that queries are soon answered 503, and that a query
// for partial answers gets the time and the cause.
func wantQuestionsFail(t *testing.T, s *process.Server, l *ledger) {
	t.Helper()
	limit := failsWithin
	for i := range 1 + questionsAtOnce {
		began := time.Now()
		err := l.check(t.Context(), s, l.all())
		took := time.Since(began)
		var status *process.StatusError
		if !errors.As(err, &status) || status.Got != http.StatusServiceUnavailable || took > limit {
			t.Errorf("question %d while no node answers: after %v: %v; want 503 within %v", i, took, err, limit)
		} else if i < 2 {
			t.Logf("question %d while no node answers: 503 after %v", i, took.Round(time.Millisecond))
		}
		limit = failsAtOnce
	}
	answer, err := s.Want(t.Context(), http.StatusOK, "POST", "/api/v1/datapoints/query?partial=allow",
		fmt.Sprintf(`{"start_absolute":%d,"metrics":[{"name":%q}]}`, l.firstMS, l.metric))
	if err != nil || !strings.Contains(string(answer), noNodeAnswers) {
		t.Errorf("what there is while no node answers: %.500s (%v), want that it says %q", answer, err, noNodeAnswers)
	}
	t.Logf("what there is: %.300s", answer)
}

// await calls ask until it returns no error.
func await(t *testing.T, limit time.Duration, what string, ask func() error) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := ask()
		if err == nil {
			return
		}
		if time.Since(began) > limit {
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
	}
}

// up returns an error until all servers are connected to n nodes.
func up(t *testing.T, servers []*process.Server, n int) error {
	t.Helper()
	for i, s := range servers {
		m, err := s.Metrics(t.Context())
		if err != nil {
			return err
		}
		if got := m[`varve_cql_nodes_up{cluster="write_cluster"}`]; got != float64(n) {
			return fmt.Errorf("server %d is connected to %v nodes, want %d", i, got, n)
		}
	}
	return nil
}
