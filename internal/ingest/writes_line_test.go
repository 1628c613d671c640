package ingest

import (
	"testing"
	"time"

	"varve/internal/congestion"
	"varve/internal/gate"
)

// TestLeastWrites: in a congested line exactly leastWrites blocks wait. The next one is refused and
// takes no place.
func TestLeastWrites(t *testing.T) {
	now := time.Now()
	l := writes{patience: congestion.Patience(time.Minute)}
	for i := range leastWrites {
		if err := l.enter(now.Add(time.Duration(i) * time.Hour)); err != nil {
			t.Fatalf("block %d: %v", i+1, err)
		}
	}
	later := now.Add(leastWrites * time.Hour)
	for range 2 {
		if err := l.enter(later); err == nil {
			t.Fatalf("%d blocks wait", l.inside.Load())
		}
	}
	l.leave()
	if err := l.enter(later); err != nil {
		t.Errorf("after one has left: %v", err)
	}
	if n := l.refused.Load(); n != 2 {
		t.Errorf("%d blocks were refused, want 2", n)
	}
}

// TestBodyReleasedTwice: the buffer of a body that is released twice is not given to two others.
func TestBodyReleasedTwice(t *testing.T) {
	b := &Body{Bytes: newBuffer(bufferSizes[0]), share: (&Pipeline{smallBodies: gate.New(1), bodies: gate.New(1)}).NewShare("")}
	b.Release()
	b.Release()
	if b.Bytes != nil {
		t.Error("a released body has bytes")
	}
}

// TestSizesOfBuffers: a buffer has the least size that is kept and suffices, and the size asked for
// beyond those.
func TestSizesOfBuffers(t *testing.T) {
	largest := bufferSizes[len(bufferSizes)-1]
	for _, c := range []struct{ size, want int }{
		{1, bufferSizes[0]}, {bufferSizes[0], bufferSizes[0]}, {bufferSizes[0] + 1, bufferSizes[1]}, {bufferSizes[1] + 1, bufferSizes[2]},
		{largest, largest}, {largest + 1, largest + 1},
	} {
		if b := newBuffer(c.size); len(b) != 0 || cap(b) != c.want {
			t.Errorf("a buffer for %d bytes has %d, and room for %d, want %d", c.size, len(b), cap(b), c.want)
		}
	}
}
