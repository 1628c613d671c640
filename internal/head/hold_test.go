package head

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"varve/internal/model"
)

// TestSnapshotHolds: what a snapshot takes beside the head is held: references to very many fragments, and all
// samples of a shuffled series. It is given back, and an error of Hold ends the snapshot.
func TestSnapshotHolds(t *testing.T) {
	const text = 3
	shuffled := New(48 << 20)
	value := strings.Repeat("x", 1000)
	for i := range int64(3000) {
		write(shuffled, text, sample{MS: i * 7919 % 3000, Text: value})
	}
	for name, c := range map[string]struct {
		head   *Head
		series model.SeriesNumber
		least  int64
	}{
		"shuffled":  {shuffled, text, 2 * 3000 * 1000},
		"fragments": {fragmented(5 * collectStep), 1, 4 * collectStep * listBytes},
	} {
		var held, most int64
		full := errors.New("full")
		run := Run{Hold: func(n int64) error {
			if held+n > 2*c.least {
				return full
			}
			held += n
			most = max(most, held)
			return nil
		}}
		if _, err := c.head.Snapshot(c.series, model.AllTime, &run); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if most < c.least {
			t.Errorf("%s: %d bytes were held, want at least %d", name, most, c.least)
		}
		run.Release()
		if held != 0 {
			t.Errorf("%s: %d bytes are held after the end", name, held)
		}
		run.Hold = func(n int64) error {
			if n > 0 {
				return full
			}
			return nil
		}
		if _, err := c.head.Snapshot(c.series, model.AllTime, &run); !errors.Is(err, full) {
			t.Errorf("%s: %v, want that of Hold", name, err)
		}
		run.Release()
		if _, err := c.head.Snapshot(c.series, model.AllTime, &run); err != nil || run.Open.Len() == 0 && len(run.Fragments) == 0 || !slices.IsSorted(run.Open.Times) {
			t.Errorf("%s: without Hold: %v", name, err)
		}
	}
}
