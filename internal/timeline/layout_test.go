package timeline

import (
	"errors"
	"strings"
	"testing"
	"time"

	"varve/internal/store"
)

func TestBuckets(t *testing.T) {
	h := History{Layouts: []Layout{{From: Beginning, Size: 100}, {From: 1000, Size: 10}, {From: 1050, Size: 50}}}
	for _, c := range []struct{ time, start, end int64 }{
		{-1, -100, 0}, {-100, -100, 0}, {0, 0, 100}, {999, 900, 1000}, {1000, 1000, 1010}, {1049, 1040, 1050}, {1050, 1050, 1100}, {1101, 1100, 1150}, {MinTime, floor(MinTime, 100), floor(MinTime, 100) + 100},
	} {
		if start, end := h.Bucket(c.time); start != c.start || end != c.end {
			t.Errorf("bucket of %d: %d to %d, want %d to %d", c.time, start, end, c.start, c.end)
		}
	}
	for i, size := range Sizes[1:] {
		if size%Sizes[i] != 0 {
			t.Errorf("%d does not divide %d", Sizes[i], size)
		}
	}
}

// TestChoose checks the layout for each rate in the table of the design, and when a layout changes:
// a layout that is close enough to the best one stays.
func TestChoose(t *testing.T) {
	for _, c := range []struct {
		rate   float64
		size   int64 // seconds
		factor int
	}{{0.001, 86400, 1}, {0.1, 86400, 1}, {1, 3600, 1}, {100, 60, 1}, {10_000, 10, 10}, {1_000_000, 10, FactorMax}} {
		size, factor := choose(c.rate, 140)
		if size != c.size*second || factor != c.factor {
			t.Errorf("at %v a second: %d s, %d partitions; want %d s, %d", c.rate, size/second, factor, c.size, c.factor)
		}
		if _, _, better := adapted(Layout{Size: size, Factor: factor}, c.rate, 140); better {
			t.Errorf("at %v a second the layout that was chosen is not kept", c.rate)
		}
		if _, _, better := adapted(Layout{Size: size, Factor: factor}, c.rate*2, 140); better && factor < FactorMax {
			t.Errorf("at %v a second a rate that doubles changes the layout", c.rate)
		}
	}
	if size, factor, better := adapted(Layout{Size: Sizes[4], Factor: 1}, 100, 140); !better || size != Sizes[1] || factor != 1 {
		t.Errorf("from days to 100 a second: %d, %d, %v", size, factor, better)
	}
	if size, factor, better := adapted(Layout{Size: Sizes[0], Factor: 10}, 0.01, 140); !better || size != Sizes[4] || factor != 1 {
		t.Errorf("from ten partitions to one event in 100 s: %d, %d, %v", size, factor, better)
	}
}

// TestLayoutFarAhead: a layout that could begin only years from now must be proposed with its time,
// because no other layout could begin before it.
func TestLayoutFarAhead(t *testing.T) {
	now := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	e := &Engine{now: func() time.Time { return now }, config: DefaultConfig()}
	h := History{Version: 1, Layouts: []Layout{{From: Beginning, Size: 60 * second, Factor: 1, Mode: Materialised, Placement: Hash}}}
	const years = 1000 * 86400 * second
	for size, far := range map[int64]bool{10 * second: false, 86400 * second: false, 7 * second: false, 7 * 86400 * second: false, years: true, maxSize: true} {
		next, err := e.extended(h, Proposal{Size: size})
		switch {
		case !far && (err != nil || len(next.Layouts) != 2):
			t.Errorf("buckets of %v: %v", duration(size), err)
		case far && (!errors.As(err, new(*store.InputError)) || !strings.Contains(err.Error(), "at the earliest, when buckets of 1m0s and of")):
			t.Errorf("buckets of %v: %v", duration(size), err)
		}
	}
	at := floor(now.UnixMicro(), years) + years
	if next, err := e.extended(h, Proposal{Size: years, From: at}); err != nil || next.Layouts[1].From != at {
		t.Errorf("with its time: %v", err)
	}
}
