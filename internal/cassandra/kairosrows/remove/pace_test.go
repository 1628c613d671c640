package remove

import (
	"testing"
	"time"
)

// node is a node that does rows at once, each in its time; further ones wait.
type node struct {
	atOnce int
	row    time.Duration
}

// delete deletes rows at a pace, and returns how long that takes.
func (n node) delete(p *pace, rows int) (took time.Duration) {
	for rows > 0 {
		some := min(p.next(), rows)
		d := n.row * time.Duration(some) / time.Duration(min(p.wide, n.atOnce))
		p.took(some, d)
		rows -= some
		took += d
	}
	return took
}

// A delete works on about as many rows at once as the node does, which is as fast as with
// more of them, and on no more than it may.
func TestPace(t *testing.T) {
	for _, c := range []struct{ atOnce, most, least, greatest int }{
		{1, 32, paceLeast, 7},
		{4, 32, 4, 7},
		{12, 32, 12, 18},
		{1000, 32, 32, 32},
		{1000, 1, 1, 1},
	} {
		n, p := node{c.atOnce, time.Millisecond}, newPace(c.most)
		const rows = 50_000
		took := n.delete(&p, rows)
		if p.wide < c.least || p.wide > c.greatest {
			t.Errorf("a node that does %d rows at once gets %d, want %d to %d", c.atOnce, p.wide, c.least, c.greatest)
		}
		if best := n.row * rows / time.Duration(min(c.atOnce, c.most)); took > best*11/10 {
			t.Errorf("a node that does %d rows at once is done after %v, with %d it could be after %v", c.atOnce, took, c.most, best)
		}
	}
}

// A delete makes room when others come, and takes it again when they have left.
func TestPaceChanges(t *testing.T) {
	p := newPace(32)
	for _, step := range []struct {
		node
		least, greatest int
	}{
		{node{16, time.Millisecond}, 16, 32},
		{node{2, time.Millisecond}, paceLeast, 8},
		{node{16, time.Millisecond}, 16, 32},
		{node{16, 3 * time.Millisecond}, 16, 32}, // all takes longer, for another reason
	} {
		step.delete(&p, 100_000)
		if p.wide < step.least || p.wide > step.greatest {
			t.Errorf("%+v gets %d rows at once, want %d to %d", step.node, p.wide, step.least, step.greatest)
		}
	}
}

// While samples are written, a delete processes few rows at once, and many again afterwards.
func TestPaceShares(t *testing.T) {
	n, p := node{1000, time.Millisecond}, newPace(32)
	for _, samples := range []bool{false, true, false} {
		for range 100 {
			p.share(samples)
			if n.delete(&p, p.next()); samples && p.wide > paceFew {
				t.Fatalf("%d rows at once while samples are written", p.wide)
			}
		}
		if !samples && p.wide != 32 {
			t.Errorf("%d rows at once without samples", p.wide)
		}
	}
	if p.share(true); p.wide > paceFew {
		t.Errorf("%d rows at once while samples are written", p.wide)
	}
	if p.share(false); p.wide != 32 { // index rows are removed without measurements
		t.Errorf("%d rows at once after the samples, and 32 before", p.wide)
	}
}

// A delete that takes long rests three times as long as it works. A small one does not rest, nor
// does one for which samples wait.
func TestPaceRests(t *testing.T) {
	for _, c := range []struct {
		pace   pace
		rounds int
		round  time.Duration
		want   time.Duration // of all rests
	}{
		{restingPace(32), 9, paceRestless / 10, 0},
		{restingPace(32), 19, paceRestless / 10, 10 * 3 * paceRestless / 10},
		{restingPace(32), 2, time.Hour, 2 * paceRestMost},
		{newPace(32), 100, time.Second, 0},
		{steadyPace(32), 100, time.Second, 0},
	} {
		var rested time.Duration
		for range c.rounds {
			rested += c.pace.rest(c.round)
		}
		if rested != c.want {
			t.Errorf("%d rounds of %v: %v of rest, want %v", c.rounds, c.round, rested, c.want)
		}
	}
}
