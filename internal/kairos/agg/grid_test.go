package agg

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A grid's buckets follow each other without gaps, whatever instant finds them, and a
// query cuts the range of Run in the same way.
func TestGrid(t *testing.T) {
	zones := []string{"UTC", "Europe/Berlin", "Asia/Kathmandu", "America/Sao_Paulo", "Australia/Lord_Howe", "Pacific/Apia"}
	samplings := []Sampling{
		{1, Milliseconds}, {250, Milliseconds}, {7, Seconds}, {1, Minutes}, {7, Minutes}, {90, Minutes}, {1, Hours}, {5, Hours}, {12, Hours}, {36, Hours},
		{1, Days}, {3, Days}, {1, Weeks}, {2, Weeks}, {1, Months}, {5, Months}, {1, Years}, {3, Years},
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, name := range zones {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range samplings {
			g := NewGrid(s, zone)
			for range 200 {
				ms := random.Int64N(4_000_000_000_000) - 500_000_000_000
				start, next := g.Start(ms), g.Next(ms)
				if start > ms || next <= ms {
					t.Fatalf("%s %v: %d is in [%d,%d)", name, s, ms, start, next)
				}
				if a, b := g.Start(start), g.Start(next-1); a != start || b != start {
					t.Fatalf("%s %v: bucket [%d,%d) of %d begins at %d by its start, %d by its end", name, s, start, next, ms, a, b)
				}
				if a, b := g.Next(start), g.Next(next-1); a != next || b != next {
					t.Fatalf("%s %v: bucket [%d,%d) of %d ends at %d by its start, %d by its end", name, s, start, next, ms, a, b)
				}
				if g.Start(next) != next || g.Next(start-1) != start {
					t.Fatalf("%s %v: the neighbours of [%d,%d) do not touch it", name, s, start, next)
				}
				end, bounded := g.Run(start)
				b := buckets{cal: calendar{zone}, sampling: s, originMS: start}
				for at, i := start, 0; i < 20 && (!bounded || at < end); i++ {
					if got := b.find(at).startMS; got != at {
						t.Fatalf("%s %v: a query from %d cuts at %d, the grid at %d", name, s, start, got, at)
					}
					at = g.Next(at)
				}
			}
		}
	}
}

func TestGridOrigins(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		s        Sampling
		at, want string
	}{
		{Sampling{1, Weeks}, "2024-03-31T12:00:00+02:00", "2024-03-25T00:00:00+01:00"},
		{Sampling{1, Days}, "2024-03-31T12:00:00+02:00", "2024-03-31T00:00:00+01:00"},
		{Sampling{12, Hours}, "2024-03-31T12:30:00+02:00", "2024-03-31T00:00:00+01:00"},
		{Sampling{12, Hours}, "2024-03-31T13:30:00+02:00", "2024-03-31T13:00:00+02:00"},
		{Sampling{12, Hours}, "2024-04-01T00:30:00+02:00", "2024-04-01T00:00:00+02:00"},
		{Sampling{1, Months}, "2024-03-31T12:00:00+02:00", "2024-03-01T00:00:00+01:00"},
		{Sampling{3, Months}, "2024-03-31T12:00:00+02:00", "2024-01-01T00:00:00+01:00"},
		{Sampling{1, Years}, "2024-03-31T12:00:00+02:00", "2024-01-01T00:00:00+01:00"},
	} {
		at, err := time.Parse(time.RFC3339, tc.at)
		if err != nil {
			t.Fatal(err)
		}
		got := time.UnixMilli(NewGrid(tc.s, berlin).Start(at.UnixMilli())).In(berlin).Format(time.RFC3339)
		if got != tc.want {
			t.Errorf("%v: %s begins at %s, want %s", tc.s, tc.at, got, tc.want)
		}
	}
}
