package cluster

import (
	"fmt"
	"testing"
	"time"

	"varve/e2e/process"
	"varve/internal/originals"
)

// skew is the amount by which clocks differ and jump.
const skew = 40 * time.Second

// TestRingOfClocks: the clocks of nodes differ from each other and from those of
// servers, and a server's clock jumps. The nodes must not drop messages that seem
// old, as they do by default.
func TestRingOfClocks(t *testing.T) {
	if !*ringFlag {
		t.Skip("*** SKIPPED: a ring of three Cassandra nodes whose clocks differ; run `make test-cluster`, or this package with -cluster ***")
	}
	s := seed(t)
	nodes := originals.StartCluster(t, originals.ClusterOptions{Nodes: 3, IP: *ipFlag, Clocks: true, YAML: yaml + "\ninternode_timeout: false"})
	nodes.Nodes[1].SetClock(skew)
	nodes.Nodes[2].SetClock(-skew)
	for _, ahead := range []time.Duration{skew, -skew} {
		t.Run(fmt.Sprintf("servers/%v", ahead), func(t *testing.T) {
			clock := process.NewClock(t)
			clock.Set(t, ahead)
			p := &place{t: t, nodes: nodes, keyspace: fmt.Sprintf("servers_%d", ahead/time.Second+100), clock: clock}
			p.several(t, s)
		})
	}
	t.Run("between", func(t *testing.T) {
		(&place{t: t, nodes: nodes, keyspace: "between"}).between(t, s, process.NewClock(t))
	})
	t.Run("jumps", func(t *testing.T) {
		(&place{t: t, nodes: nodes, keyspace: "jumps", clock: process.NewClock(t)}).jumps(t, s)
	})
	t.Run("rollups", func(t *testing.T) {
		(&place{t: t, nodes: nodes, keyspace: "rollups"}).rollUps(t, s, process.NewClock(t), process.NewClock(t))
	})
}

// between: a server whose clock is right and a server whose clock is ahead write the
// same series. Only the latter deletes, because a delete of the other would be
// earlier, by the clocks, than what it wrote in the last 40 s. No row that they create
// or remove is hidden from either.
func (p *place) between(t *testing.T, seed uint64, clock *process.Clock) {
	clock.Set(t, skew)
	flags := []string{
		fmt.Sprintf("--tune=cassandra.read.chunk_cache_age=%v", chunkAge),
		fmt.Sprintf("--tune=cassandra.write.index_refresh=%v", refreshAge),
	}
	right, ahead := p.start(t, t.TempDir(), flags...), clock.Start(t, t.TempDir(), p.flags(flags...)...)
	connected(t, right)
	connected(t, ahead)
	l := p.ledger("between")
	loads := []*load{startPaced(t, right, l, seed, 1, 0, slow), startPaced(t, ahead, l, seed+1, 1, 0, slow)}
	for i := range 4 {
		s := span{i * eraPoints, (i + 1) * eraPoints}
		await(t, time.Minute, "points to delete", func() error { return written(l, s.to+20*blockMax) })
		handedOver(t, right, ahead)
		if err := l.erase(t.Context(), ahead, s); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range loads {
		x.end()
	}
	p.newPoints(t, l, right, ahead)
	p.newPoints(t, l, ahead, right)
	p.hidden(t, l, right, ahead)
	p.verify(t, []*ledger{l}, right, ahead)
}

// jumps: the clock of a server jumps back and forth while clients write, query and
// delete, and while a task rolls up their points.
func (p *place) jumps(t *testing.T, seed uint64) {
	v := p.start(t, t.TempDir(), "--tune=rollups.retry_interval=1s", "--rollups-late-horizon=6h")
	connected(t, v)
	l := p.ledger("jumps")
	counted := p.ledger("counted")
	rollUp(t, v, counted)
	y := startPaced(t, v, counted, seed+1, 1, 0, slow)
	x := startPaced(t, v, l, seed, 1, 1, slow)
	deleted := 0
	for i, ahead := range []time.Duration{0, skew, 0, -skew, 0, skew, -skew, 0} {
		p.clock.Set(t, ahead)
		x.during(fmt.Sprintf("%d: clock %v ahead", i, ahead), func() {
			for range 2 {
				// The points written before the jump, and some of those written after it.
				from := l.all().to
				await(t, time.Minute, "points", func() error { return written(l, from+12*blockMax) })
				s := span{deleted, (deleted + (l.all().to-10*blockMax-deleted)*2/3) / l.series * l.series}
				if err := l.erase(t.Context(), v, s); err != nil {
					t.Error(err)
				}
				if err := l.check(t.Context(), v, s); err != nil {
					t.Errorf("just deleted: %v", err)
				}
				deleted = s.to
			}
		}).quiet(t, fmt.Sprintf("clock %v ahead", ahead))
	}
	x.end()
	y.end()
	rolledUp(t, v, counted)
	p.verify(t, []*ledger{l, counted}, v)
}
