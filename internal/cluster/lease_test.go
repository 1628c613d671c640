package cluster

import (
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
