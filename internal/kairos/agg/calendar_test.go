package agg

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func instant(t testing.TB, zone, text string) int64 {
	t.Helper()
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.ParseInLocation("2006-01-02 15:04:05", text, loc)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixMilli()
}

func in(t testing.TB, zone string) calendar {
	t.Helper()
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	return calendar{loc}
}

// As many months as there can be lead as far as as many years.
func TestCalendarAddsManyMonths(t *testing.T) {
	for _, n := range []int64{math.MinInt64, math.MinInt64 / 7, -1 << 33, 1 << 33, math.MaxInt64 / 7, math.MaxInt64} {
		got, want := in(t, "UTC").add(0, n, Months), in(t, "UTC").add(0, n, Years)
		if got != want || (got < 0) != (n < 0) {
			t.Errorf("%d months from 1970 on: %d, want %d", n, got, want)
		}
	}
}

func TestCalendarAdd(t *testing.T) {
	tests := []struct {
		zone, from string
		n          int64
		unit       Unit
		want       string
	}{
		{"UTC", "2023-01-31 12:00:00", 1, Months, "2023-02-28 12:00:00"},
		{"UTC", "2023-01-31 12:00:00", 2, Months, "2023-03-31 12:00:00"},
		{"UTC", "2024-02-29 00:00:00", 1, Years, "2025-02-28 00:00:00"},
		{"UTC", "2024-02-29 00:00:00", 4, Years, "2028-02-29 00:00:00"},
		{"UTC", "2023-03-31 00:00:00", -1, Months, "2023-02-28 00:00:00"},
		{"Europe/Berlin", "2023-03-25 12:00:00", 1, Days, "2023-03-26 12:00:00"},
		{"Europe/Berlin", "2023-03-25 12:00:00", 24, Hours, "2023-03-26 13:00:00"},
		{"Europe/Berlin", "2023-03-20 00:00:00", 1, Weeks, "2023-03-27 00:00:00"},
		// 02:30 does not exist: moved on by the length of the gap.
		{"Europe/Berlin", "2023-03-25 02:30:00", 1, Days, "2023-03-26 03:30:00"},
		{"America/Sao_Paulo", "2018-11-03 00:30:00", 1, Days, "2018-11-04 01:30:00"},
		{"Pacific/Apia", "2011-12-29 18:30:00", 1, Days, "2011-12-31 18:30:00"},
		// Midnight does not exist.
		{"America/Sao_Paulo", "2018-11-03 00:00:00", 1, Days, "2018-11-04 01:00:00"},
		{"Asia/Kathmandu", "2023-01-31 00:00:00", 1, Months, "2023-02-28 00:00:00"},
		{"Pacific/Apia", "2011-12-29 00:00:00", 1, Days, "2011-12-31 00:00:00"}, // the 30th was skipped
	}
	for _, tt := range tests {
		got := in(t, tt.zone).add(instant(t, tt.zone, tt.from), tt.n, tt.unit)
		if want := instant(t, tt.zone, tt.want); got != want {
			t.Errorf("%s %s %+d %s: got %s, want %s", tt.zone, tt.from, tt.n, tt.unit, time.UnixMilli(got).In(in(t, tt.zone).zone), tt.want)
		}
	}
}

// A wall clock that shows a time twice keeps the offset of where it came from.
func TestCalendarAmbiguousTime(t *testing.T) {
	c := in(t, "Europe/Berlin")
	summer := instant(t, "Europe/Berlin", "2023-10-28 02:30:00")
	winter := instant(t, "Europe/Berlin", "2023-10-30 02:30:00")
	first, second := c.add(summer, 1, Days), c.add(winter, -1, Days)
	if first != summer+dayMS || second != winter-dayMS || second-first != hourMS {
		t.Errorf("%d %d", first, second)
	}
}

func TestCalendarAlignDown(t *testing.T) {
	tests := []struct {
		zone, at string
		unit     Unit
		want     string
	}{
		{"UTC", "2023-06-15 13:14:15", Years, "2023-01-01 00:00:00"},
		{"UTC", "2023-06-15 13:14:15", Months, "2023-06-01 00:00:00"},
		{"UTC", "2023-06-15 13:14:15", Weeks, "2023-06-12 00:00:00"},
		{"UTC", "2023-06-11 13:14:15", Weeks, "2023-06-05 00:00:00"},
		{"UTC", "2023-06-15 13:14:15", Hours, "2023-06-15 00:00:00"},
		{"UTC", "1969-12-31 13:14:15", Minutes, "1969-12-31 00:00:00"},
		{"UTC", "2023-06-15 13:14:15", Milliseconds, "2023-06-15 13:14:15"},
		{"Europe/Berlin", "2023-06-15 13:14:15", Years, "2023-01-01 00:00:00"},
		{"Asia/Kolkata", "2023-06-15 01:14:15", Seconds, "2023-06-15 00:00:00"},
		{"America/Sao_Paulo", "2018-11-04 12:00:00", Days, "2018-11-04 01:00:00"},
	}
	for _, tt := range tests {
		got := in(t, tt.zone).alignDown(instant(t, tt.zone, tt.at)+0, tt.unit)
		if want := instant(t, tt.zone, tt.want); got != want {
			t.Errorf("%s %s %s: got %s, want %s", tt.zone, tt.at, tt.unit, time.UnixMilli(got).In(in(t, tt.zone).zone), tt.want)
		}
	}
	if got := in(t, "UTC").alignDown(-1, Milliseconds); got != -1000 {
		t.Errorf("before 1970: %d", got)
	}
}

var zones = []string{
	"UTC", "Europe/Berlin", "America/Sao_Paulo", "America/St_Johns", "Asia/Kathmandu", "Australia/Lord_Howe",
	"Pacific/Apia", "Africa/Casablanca", "America/Havana",
}

// Buckets tile time from the origin on: find gives a bucket that holds the
// instant, whose ends are boundaries counted from the origin.
func TestBucketsTile(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := &buckets{
			cal:      in(t, rapid.SampledFrom(zones).Draw(rt, "zone")),
			sampling: Sampling{rapid.Int64Range(1, 40).Draw(rt, "n"), Unit(rapid.IntRange(0, 7).Draw(rt, "unit"))},
		}
		b.originMS = rapid.Int64Range(-3e12, 4e12).Draw(rt, "origin")
		if rapid.Bool().Draw(rt, "align") {
			b.originMS = b.cal.alignDown(b.originMS, b.sampling.Unit)
		}
		ms := b.originMS + rapid.Int64Range(0, 2e11).Draw(rt, "after")
		got := b.find(ms)
		if !got.holds(ms) {
			rt.Fatalf("%d is not in %v", ms, got)
		}
		if again := b.find(got.startMS); again != got {
			rt.Fatalf("start of %v is in %v", got, again)
		}
		if again := b.find(got.finalMS); again != got {
			rt.Fatalf("end of %v is in %v", got, again)
		}
		if next := b.find(got.endMS()); next.startMS != got.endMS() {
			rt.Fatalf("%v is followed by %v", got, next)
		}
	})
}

// extremeTimes are the times where arithmetic may overflow, ascending.
var extremeTimes = []int64{
	math.MinInt64, math.MinInt64 + 1, -maxCalendarMS - 1, -maxCalendarMS, -1, 0, 1, 1_700_000_000_000,
	maxCalendarMS - 1, maxCalendarMS, maxCalendarMS + dayMS, math.MaxInt64 - hourMS, math.MaxInt64 - 1, math.MaxInt64,
}

// An instant is never after its bucket, even the last possible one, and buckets do not
// share a start.
func TestBucketsOfExtremeTimes(t *testing.T) {
	for _, unit := range []Unit{Milliseconds, Hours, Days, Weeks, Months, Years} {
		for _, origin := range []int64{-1 << 63, -maxCalendarMS, 0, maxCalendarMS, 1<<63 - 1} {
			c := in(t, "Europe/Berlin")
			b := &buckets{cal: c, sampling: Sampling{3, unit}, originMS: c.alignDown(origin, unit)}
			previous := noBucket
			for _, ms := range extremeTimes {
				got := b.find(ms)
				if ms > got.finalMS || ms >= b.originMS && ms < got.startMS {
					t.Errorf("%s from %d: %d is in %v", unit, b.originMS, ms, got)
				}
				if ms >= b.originMS && previous.startMS == got.startMS && previous.finalMS != got.finalMS && previous != noBucket {
					t.Errorf("%s from %d: %v and %v begin together", unit, b.originMS, previous, got)
				}
				previous = got
			}
		}
	}
}
