package rollup

import (
	"errors"
	"testing"
	"time"

	"varve/internal/store"
)

// TestTrouble: a failure is logged at once, then once an hour while it lasts, and at
// once again after a success. An unavailable store is logged after some seconds.
func TestTrouble(t *testing.T) {
	began := time.UnixMilli(1_700_000_000_000)
	broken, away := errors.New("broken"), &store.UnavailableError{Reason: "away"}
	type step struct {
		after time.Duration // since the beginning
		err   error         // nil: a success
		count int
		tell  bool
	}
	for name, steps := range map[string][]step{
		"a failure": {
			{0, broken, 1, true}, {time.Second, broken, 2, false}, {logEvery - 1, broken, 3, false},
			{logEvery, broken, 4, true}, {2*logEvery - 1, broken, 5, false}, {2 * logEvery, broken, 6, true},
		},
		"two failures within an hour": {
			{0, broken, 1, true}, {time.Second, nil, 1, false}, {2 * time.Second, broken, 1, true}, {3 * time.Second, broken, 2, false},
		},
		"a store that is away": {
			{0, away, 1, false}, {patience - 1, away, 2, false}, {patience, away, 3, true}, {patience + 1, away, 4, false},
			{patience + logEvery - 1, away, 5, false}, {patience + logEvery, away, 6, true},
		},
		"a store that is away twice": {
			{0, away, 1, false}, {patience, away, 2, true}, {patience + 1, nil, 2, false},
			{time.Minute, away, 1, false}, {time.Minute + patience - 1, away, 2, false}, {time.Minute + patience, away, 3, true},
		},
		"a success after nothing": {{0, nil, 0, false}, {0, broken, 1, true}},
	} {
		var x trouble
		for i, s := range steps {
			var count int
			var tell bool
			if s.err == nil {
				count = x.over()
			} else {
				count, tell = x.await(began.Add(s.after), s.err)
			}
			if count != s.count || tell != s.tell {
				t.Errorf("%s, step %d: %d failures, told %t; want %d, %t", name, i, count, tell, s.count, s.tell)
			}
		}
	}
}
