package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"varve/e2e/process"
)

// Within these times after a change is in Cassandra, another process sees it.
const (
	lingers    = 300 * time.Millisecond
	chunkAge   = 3 * time.Second // finished rows: cassandra.read.chunk_cache_age
	keysAge    = time.Second     // of row keys that changed lately
	refreshAge = 5 * time.Second // index rows that a delete elsewhere has removed: cassandra.write.index_refresh
	slack      = 3 * time.Second // for a busy machine
)

// several: two processes write the same series and others, keep creating new
// ones, and delete. Both find all points.
func (p *place) several(t *testing.T, seed uint64) {
	flags := []string{
		fmt.Sprintf("--tune=cassandra.read.chunk_cache_age=%v", chunkAge),
		fmt.Sprintf("--tune=cassandra.write.index_refresh=%v", refreshAge),
	}
	a, b := p.start(t, t.TempDir(), flags...), p.start(t, t.TempDir(), flags...)
	connected(t, a)
	connected(t, b)
	ledgers := []*ledger{p.ledger("own.a"), p.ledger("own.b"), p.ledger("shared")}
	loads := []*load{
		startLoad(t, a, ledgers[0], seed, 1, 1),
		startLoad(t, b, ledgers[1], seed+1, 1, 1),
		startLoad(t, a, ledgers[2], seed+2, 1, 0),
		startLoad(t, b, ledgers[2], seed+3, 1, 0),
	}
	time.Sleep(15 * time.Second)
	for i, x := range loads {
		a := x.told(fmt.Sprintf("two processes, load %d", i), 15*time.Second)
		if a.writeErrors+a.questionErrors > 0 {
			t.Errorf("load %d: %d writes and %d questions failed", i, a.writeErrors, a.questionErrors)
		}
		x.end()
	}
	p.drained(t, a, time.Minute)
	p.drained(t, b, time.Minute)
	for _, l := range ledgers {
		for name, s := range map[string]*process.Server{"a": a, "b": b} {
			took := p.seen(t, chunkAge+keysAge+slack, func() error {
				return errors.Join(l.check(t.Context(), s, l.all()), l.checkEach(t.Context(), s, l.all()))
			})
			t.Logf("%s: all %d points seen by %s %v after they were drained", l.metric, l.count(stored), name, took)
		}
	}
	l := ledgers[2]
	p.newPoints(t, l, a, b)
	p.deletes(t, l, a, b)
	p.hidden(t, l, a, b)
	p.deletesUnderLoad(t, seed, a, b)
	p.verify(t, ledgers, a, b)
}

// seen repeats a query until the answer is right, and returns how long that
// took.
func (p *place) seen(t *testing.T, limit time.Duration, ask func() error) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		err := ask()
		took := time.Since(began)
		if err == nil {
			return took.Round(10 * time.Millisecond)
		}
		if took > limit {
			t.Errorf("not seen within %v: %v", limit, err)
			return took
		}
	}
}

// newPoints measures how soon b sees points that a has written.
func (p *place) newPoints(t *testing.T, l *ledger, a, b *process.Server) {
	var slowest time.Duration
	for range 8 {
		s := l.next(70)
		if err := l.check(t.Context(), b, s); err != nil { // b knows the rows without them
			t.Fatal(err)
		}
		if err := l.post(t.Context(), a, s); err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, p.seen(t, lingers+chunkAge+keysAge+slack, func() error {
			return errors.Join(l.check(t.Context(), b, s), l.checkEach(t.Context(), b, s))
		}))
	}
	t.Logf("new points of new and old series: seen by the other process after %v at most", slowest)
}

// deletes measures how soon b sees deletes of a.
func (p *place) deletes(t *testing.T, l *ledger, a, b *process.Server) {
	const most = 6
	for len(l.points) < 2*most*eraPoints { // a slow machine may have written fewer meanwhile
		if err := l.post(t.Context(), a, l.next(eraPoints)); err != nil {
			t.Fatal(err)
		}
	}
	p.drained(t, a, time.Minute)
	p.drained(t, b, time.Minute)
	var slowest time.Duration
	for i := range most {
		s := span{i * 2 * eraPoints, (i*2 + 1) * eraPoints}
		if err := l.check(t.Context(), b, s); err != nil {
			t.Fatal(err)
		}
		if err := l.erase(t.Context(), a, s); err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, p.seen(t, chunkAge+keysAge+slack, func() error {
			return errors.Join(l.check(t.Context(), b, s), l.checkEach(t.Context(), b, s))
		}))
		a, b = b, a
	}
	t.Logf("deletes: seen by the other process after %v at most", slowest)
}

// hidden: a writes once into rows whose index rows b has just deleted, and
// never again.
func (p *place) hidden(t *testing.T, l *ledger, a, b *process.Server) {
	var slowest time.Duration
	for range 4 {
		if rest := len(l.points) % eraPoints; rest > 0 {
			l.set(l.next(eraPoints-rest), unsent)
		}
		s := l.next(eraPoints)
		first, second := span{s.from, s.from + eraPoints/2}, span{s.from + eraPoints/2, s.to}
		l.set(second, unsent)
		if err := l.post(t.Context(), a, first); err != nil {
			t.Fatal(err)
		}
		p.drained(t, a, time.Minute)
		if err := l.erase(t.Context(), b, first); err != nil {
			t.Fatal(err)
		}
		l.set(second, open)
		if err := l.post(t.Context(), a, second); err != nil {
			t.Fatal(err)
		}
		p.drained(t, a, time.Minute)
		for _, x := range []*process.Server{a, b} {
			slowest = max(slowest, p.seen(t, refreshAge+chunkAge+keysAge+slack, func() error {
				return errors.Join(l.check(t.Context(), x, s), l.checkEach(t.Context(), x, s))
			}))
		}
	}
	t.Logf("points in rows that the other process has just deleted: seen by both after %v at most", slowest)
}

// deletesUnderLoad: both delete points that are some seconds old while both
// write.
func (p *place) deletesUnderLoad(t *testing.T, seed uint64, a, b *process.Server) {
	l := p.ledger("deleted")
	loads := []*load{startLoad(t, a, l, seed+4, 1, 0), startLoad(t, b, l, seed+5, 1, 0)}
	deleted := 0
	for range 10 {
		time.Sleep(1500 * time.Millisecond)
		end := l.all().to
		for _, s := range []*process.Server{a, b} { // all older points are in Cassandra
			if _, err := s.Want(t.Context(), http.StatusNoContent, "POST", "/admin/flush", ""); err != nil {
				t.Fatal(err)
			}
		}
		old := max(deleted, end-10*blockMax) // points that may be pending are newer
		if old > deleted {
			if err := l.erase(t.Context(), a, span{deleted, old}); err != nil {
				t.Fatal(err)
			}
		}
		deleted = old
		a, b = b, a
	}
	for _, x := range loads {
		x.end()
	}
	p.drained(t, a, time.Minute)
	p.drained(t, b, time.Minute)
	for _, s := range []*process.Server{a, b} {
		p.seen(t, refreshAge+chunkAge+keysAge+slack, func() error {
			return errors.Join(l.check(t.Context(), s, l.all()), l.checkEach(t.Context(), s, l.all()))
		})
	}
	t.Logf("deletes under load: %d points deleted, %d there", l.count(erased), l.count(stored))
}
