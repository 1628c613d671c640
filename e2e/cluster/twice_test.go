package cluster

import (
	"testing"
	"time"

	"varve/e2e/process"
)

// twice: all nodes go down, the spool fills up, deletes are refused, and the server is
// killed and restarts, with a full spool and without Cassandra. When the nodes are back,
// the waiting points are written, and a delete of them is carried out. All of this
// happens twice.
func (p *place) twice(t *testing.T, away, back func()) {
	dir := t.TempDir()
	flags := []string{"--cassandra-spool-max-bytes=1MiB", "--tune=cassandra.spool.log.segment_bytes=64KiB"}
	v := p.start(t, dir, flags...)
	connected(t, v)
	l := p.ledger("twice")
	l.padding = 2000
	if err := l.post(t.Context(), v, l.next(eraPoints)); err != nil {
		t.Fatal(err)
	}
	p.drained(t, v, time.Minute)
	for range 2 {
		away()
		before := l.all().to
		for refused := false; !refused; refused = !l.sent(t, v, 70) {
			if l.all().to > before+50*eraPoints {
				t.Fatal("the spool does not fill up")
			}
		}
		first := span{0, eraPoints}
		if err := l.erase(t.Context(), v, first); !busy(err) {
			t.Errorf("a delete while no node is there: %v, want 503", err)
		}
		l.set(first, stored) // nothing was deleted
		v.Kill()
		v = p.start(t, dir, flags...)
		if l.sent(t, v, 700) {
			t.Error("a full spool takes more after a restart")
		}
		back()
		connected(t, v)
		await(t, time.Minute, "points taken again", func() error { return l.post(t.Context(), v, l.next(70)) })
		waited := span{before, before + 5*70}
		if err := l.erase(t.Context(), v, waited); err != nil {
			t.Errorf("a delete of what waited: %v", err)
		}
		if err := l.check(t.Context(), v, l.all()); err != nil {
			t.Error(err)
		}
	}
	p.verify(t, []*ledger{l}, v)
}

// sent sends n new points, and reports whether they were accepted; otherwise they
// got 503.
func (l *ledger) sent(t *testing.T, v *process.Server, n int) bool {
	t.Helper()
	s := l.next(n)
	err := l.post(t.Context(), v, s)
	if err != nil && !busy(err) {
		t.Errorf("points for a full spool: %v, want 503", err)
	}
	if err != nil {
		l.set(s, open)
	}
	return err == nil
}
