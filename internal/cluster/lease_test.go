package cluster

import (
	"errors"
	"testing"
	"time"
)

// Check must not wait for the request of a renewal, which may take a quarter of the lease's life.
func TestCheckDuringRenewal(t *testing.T) {
	l := &Lease{node: &Node{now: time.Now}, life: time.Minute, began: time.Now()}
	l.turn.Lock() // as Renew does, for as long as its request takes
	defer l.turn.Unlock()
	if err := l.Check(); err != nil {
		t.Error(err)
	}
}

// A lease that was lost or released may be released and renewed again, by any goroutine.
func TestLeaseThatIsGone(t *testing.T) {
	l := &Lease{node: &Node{now: time.Now}, life: time.Minute, began: time.Now()}
	l.end()
	if err := l.Release(t.Context()); err != nil {
		t.Errorf("released: %v", err)
	}
	if !l.turn.TryLock() {
		t.Fatal("Release keeps the turn")
	}
	l.turn.Unlock()
	if err := l.Renew(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("renewed: %v", err)
	}
	if !l.turn.TryLock() {
		t.Fatal("Renew keeps the turn")
	}
	l.turn.Unlock()
}
