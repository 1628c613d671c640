package cql_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
)

// A slowNetwork delays what one node answers.
type slowNetwork struct {
	address string
	delay   atomic.Int64 // ns
}

func (n *slowNetwork) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil || address != n.address {
		return conn, err
	}
	slow := &slowConn{Conn: conn, chunks: make(chan chunk, 1024)}
	go slow.run(&n.delay)
	return slow, nil
}

// A slowConn hands out what it reads later, as over a long line.
type slowConn struct {
	net.Conn
	chunks chan chunk
	rest   []byte
}

type chunk struct {
	bytes []byte
	due   time.Time
	err   error
}

func (c *slowConn) run(delay *atomic.Int64) {
	defer close(c.chunks)
	for {
		b := make([]byte, 64<<10)
		n, err := c.Conn.Read(b)
		c.chunks <- chunk{b[:n], time.Now().Add(time.Duration(delay.Load())), err}
		if err != nil {
			return
		}
	}
}

func (c *slowConn) Read(b []byte) (int, error) {
	if len(c.rest) == 0 {
		next, ok := <-c.chunks
		if !ok {
			return 0, net.ErrClosed
		}
		time.Sleep(time.Until(next.due))
		if len(next.bytes) == 0 {
			return 0, next.err
		}
		c.rest = next.bytes
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// readFor reads single partitions with some workers for a time, and returns how long the
// reads took.
func readFor(t *testing.T, s *cql.Session, workers int, d time.Duration) []time.Duration {
	t.Helper()
	var mu sync.Mutex
	var all []time.Duration
	var wg sync.WaitGroup
	end := time.Now().Add(d)
	for w := range workers {
		wg.Go(func() {
			var own []time.Duration
			for i := 0; time.Now().Before(end); i++ {
				began, n := time.Now(), 0
				rows := s.Query(t.Context(), selectPartition, []byte(fmt.Sprint("key", (w*97+i)%300)))
				for rows.Scan(nil, nil, nil) {
					n++
				}
				if err := rows.Close(); err != nil || n != 20 {
					t.Errorf("%d rows, %v", n, err)
					return
				}
				own = append(own, time.Since(began))
				time.Sleep(5 * time.Millisecond) // the machine is not to be the limit
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
		})
	}
	wg.Wait()
	return all
}

var selectPartition = &cql.Statement{Name: "select_partition", Text: selectAll.Text} // one page

// TestHedgedReads: while one of three nodes answers late, reads take hardly longer: they
// are asked of another replica, and the slow one is passed over. The log has what it is
// without.
func TestHedgedReads(t *testing.T) {
	needLong(t)
	cluster := originals.StartCluster(t, originals.ClusterOptions{Nodes: 3})
	network := &slowNetwork{address: cluster.Nodes[1].Address}
	open := func(after time.Duration, keyspace string) (*cql.Session, *prometheus.Registry) {
		config := cqltest.Config(cluster.Addresses()...)
		config.HedgeAfter = after
		if keyspace != "" {
			config.Keyspace = keyspace
		}
		registry := prometheus.NewRegistry()
		s := cqltest.Open(t, config, cql.Options{Registerer: registry, Dial: network.dial})
		until(t, time.Minute, "connected with all nodes", func() bool { return s.State().Nodes == 3 })
		return s, registry
	}
	hedged, registry := open(cql.DefaultConfig().HedgeAfter, "")
	if err := hedged.CreateKeyspace(t.Context(), "{'class': 'SimpleStrategy', 'replication_factor': '3'}"); err != nil {
		t.Fatal(err)
	}
	cqltest.Must(t, hedged, table)
	for key := range 300 {
		for column := range 20 {
			if err := hedged.Exec(t.Context(), insert, 1000, []byte(fmt.Sprint("key", key)), []byte(fmt.Sprint(column)), []byte("value")); err != nil {
				t.Fatal(err)
			}
		}
	}
	plain, _ := open(0, hedged.KeyspaceName())
	count := func(result string) float64 {
		return metric(t, registry, "varve_cql_hedges_total", map[string]string{"result": result})
	}
	compare := func(what string) (without, with time.Duration) {
		t.Helper()
		before := map[string]float64{}
		for _, result := range []string{"won", "lost", "failed", "withheld"} {
			before[result] = count(result)
		}
		var p99 []time.Duration
		of := map[*cql.Session][]time.Duration{}
		for range 3 { // in turn, since the machine has other work
			for _, s := range []*cql.Session{plain, hedged} {
				of[s] = append(of[s], readFor(t, s, 8, 4*time.Second)...)
			}
		}
		for _, s := range []*cql.Session{plain, hedged} {
			took := slices.Sorted(slices.Values(of[s]))
			at := func(share float64) time.Duration {
				return took[int(share*float64(len(took)-1))].Round(100 * time.Microsecond)
			}
			name := "without"
			if s == hedged {
				name = "with"
			}
			t.Logf("%-22s %-8s %6d reads: p50 %v, p90 %v, p99 %v, p99.9 %v, slowest %v", what, name, len(took), at(0.5), at(0.9), at(0.99), at(0.999), at(1))
			p99 = append(p99, at(0.99))
		}
		for _, result := range []string{"won", "lost", "failed", "withheld"} {
			t.Logf("%-22s hedges %s: %v", what, result, count(result)-before[result])
		}
		return p99[0], p99[1]
	}
	readFor(t, plain, 8, 10*time.Second) // the nodes warm up
	readFor(t, hedged, 8, 5*time.Second)
	compare("all quick")
	network.delay.Store(int64(200 * time.Millisecond))
	without, with := compare("one answers 200ms late")
	if without < 150*time.Millisecond || with > without/2 {
		t.Errorf("one of three 200ms late: p99 is %v without hedges, %v with", without, with)
	}
	network.delay.Store(int64(30 * time.Millisecond))
	compare("one answers 30ms late")
	network.delay.Store(0)
	stop := make(chan struct{})
	var pauses sync.WaitGroup
	pauses.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(700 * time.Millisecond):
			}
			cluster.Nodes[1].Pause()
			time.Sleep(300 * time.Millisecond)
			cluster.Nodes[1].Resume()
		}
	})
	compare("one stands 0.3 of 1s")
	close(stop)
	pauses.Wait()
	compare("all quick again")
}
