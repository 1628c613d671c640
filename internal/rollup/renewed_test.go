package rollup

import (
	"testing"
	"time"
)

// TestRenewedLate: once its entry is so old that other nodes may have claimed its
// tasks, a node is no longer sure of them.
func TestRenewedLate(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	for late, want := range map[time.Duration]bool{beatLife - 1: false, beatLife: true, beatLife + 1: true} {
		a := &assignments{beatAt: began, since: map[string]time.Time{"task": began}}
		if a.renewed(began.Add(late)); a.unsure["task"] != want || a.beatAt != began.Add(late) {
			t.Errorf("renewed after %v: unsure %v, want %t", late, a.unsure, want)
		}
	}
}
