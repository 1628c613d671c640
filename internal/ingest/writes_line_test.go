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
