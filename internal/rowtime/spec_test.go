package rowtime

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"varve/internal/model"
)

func TestUnits(t *testing.T) {
	for _, u := range []Unit{Milliseconds, Seconds, Legacy} {
		if got, err := ParseUnit(u.String()); err != nil || got != u {
			t.Errorf("ParseUnit(%s) = %v, %v", u, got, err)
		}
	}
	if u, err := ParseUnit("DAYS"); err != nil || u != Milliseconds {
		t.Errorf("ParseUnit(DAYS) = %v, %v: KairosDB takes it for milliseconds", u, err)
	}
	if u, err := ParseUnit("seconds"); err == nil {
		t.Errorf("ParseUnit(seconds) = %v, want an error", u)
	}
}

func TestValidate(t *testing.T) {
	for _, s := range []Spec{Default, {1, Milliseconds}, {MaxWidth, Legacy}, {1814400, Seconds}} {
		if err := s.Validate(); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
	for _, s := range []Spec{{}, {-1, Milliseconds}, {MaxWidth + 1, Milliseconds}, {1000, 3}} {
		if s.Validate() == nil {
			t.Errorf("%+v: valid, want an error", s)
		}
	}
}

func drawSpec(t *rapid.T) Spec {
	return Spec{
		Width: rapid.OneOf(rapid.Int64Range(1, 100), rapid.SampledFrom([]int64{1814400, DefaultWidth, MaxWidth})).Draw(t, "width"),
		Unit:  rapid.SampledFrom([]Unit{Milliseconds, Seconds, Legacy}).Draw(t, "unit"),
	}
}

func drawTime(t *rapid.T, label string) int64 {
	return rapid.OneOf(rapid.Int64Range(-500, 500), rapid.Int64Range(-4*DefaultWidth, 4*DefaultWidth), rapid.Int64(),
		rapid.SampledFrom([]int64{math.MinInt64, math.MinInt64 + 1, math.MaxInt64 - 1, math.MaxInt64})).Draw(t, label)
}

// TestRowsHoldTheirSamples checks that a read of any range that holds a sample
// looks at the sample's row and column, negative times included.
func TestRowsHoldTheirSamples(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpec(t)
		ms := drawTime(t, "ms")
		if ms < math.MinInt64+s.Width {
			t.Skip("no row")
		}
		row := s.RowTime(ms)
		if offset := ms - row; offset < 0 || offset >= s.Width {
			t.Fatalf("RowTime(%d) = %d: offset %d of %d", ms, row, offset, s.Width)
		}
		step := int64(1)
		if s.Unit == Seconds {
			step = 1000
		}
		column := s.Column(row, ms)
		if got, want := s.Time(row, column), ms-(ms-row)%step; got != want {
			t.Fatalf("Time = %d, want %d", got, want)
		}
		r := model.TimeRange{StartMS: min(ms, drawTime(t, "start")), EndMS: max(ms, drawTime(t, "end"))}
		if lowest, highest := s.RowRange(r); row < lowest || row > highest {
			t.Fatalf("row %d of %d is not in RowRange(%v) = %d..%d", row, ms, r, lowest, highest)
		}
		if from, to := s.Slice(row, r); column < from || column >= to {
			t.Fatalf("column %d of %d is not in Slice(%d, %v) = %d..%d", column, ms, row, r, from, to)
		}
	})
}

func TestSliceOutsideOfRow(t *testing.T) {
	for _, r := range []model.TimeRange{{StartMS: 10, EndMS: 9}, {StartMS: 0, EndMS: 999}, {StartMS: 1101, EndMS: 2000}} {
		if from, to := (Spec{Width: 100}).Slice(1000, r); from != 0 || to != 0 {
			t.Errorf("Slice(1000, %v) = %d..%d, want nothing", r, from, to)
		}
	}
	// The bound next to the highest time does not overflow.
	row := Default.RowTime(math.MaxInt64)
	if from, to := Default.Slice(row, model.AllTime); from != 0 || to != uint32(math.MaxInt64-row)+1 {
		t.Errorf("Slice of the last row = %d..%d", from, to)
	}
}

func TestPartition(t *testing.T) {
	hundred := Spec{Width: 100}
	const lowest = math.MinInt64 + 8 // the lowest multiple of 100
	const highest = math.MaxInt64 - 7
	for _, test := range []struct {
		s              Spec
		ms, start, end int64
	}{
		{hundred, 0, 0, 99},
		{hundred, 99, 0, 99},
		{hundred, 100, 100, 199},
		{hundred, -1, -100, -1},
		{hundred, -100, -100, -1},
		{hundred, -101, -200, -101},
		{hundred, math.MinInt64, math.MinInt64, lowest - 1},
		{hundred, lowest - 1, math.MinInt64, lowest - 1},
		{hundred, lowest, lowest, lowest + 99},
		{hundred, math.MaxInt64, highest, math.MaxInt64},
		{Default, 1501672887988, 1500508800000, 1502323199999},
		{Default, -1, -DefaultWidth, -1},
		{Spec{Width: 10, Unit: Seconds}, 12345, 10000, 19999},
	} {
		if got := test.s.Partition(test.ms); got != test.start {
			t.Errorf("%+v: Partition(%d) = %d, want %d", test.s, test.ms, got, test.start)
		}
		if got := test.s.PartitionEnd(test.start); got != test.end {
			t.Errorf("%+v: PartitionEnd(%d) = %d, want %d", test.s, test.start, got, test.end)
		}
	}
}

// TestPartitionsTile checks that partitions follow each other without gaps.
func TestPartitionsTile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, ms := drawSpec(t), drawTime(t, "ms")
		start := s.Partition(ms)
		end := s.PartitionEnd(start)
		if ms < start || ms > end {
			t.Fatalf("%d is not in its partition %d..%d", ms, start, end)
		}
		if s.Partition(start) != start || s.Partition(end) != start || s.PartitionEnd(ms) != end {
			t.Fatalf("partition %d..%d is not that of its ends", start, end)
		}
		if end < math.MaxInt64 && s.Partition(end+1) != end+1 {
			t.Fatalf("no partition starts after %d", end)
		}
		if ms >= 0 && s.Unit != Seconds && s.RowTime(ms) != start {
			t.Fatalf("RowTime(%d) = %d, partition %d", ms, s.RowTime(ms), start)
		}
	})
}

func TestSliceOfWidestLegacyRow(t *testing.T) {
	s := Spec{Width: MaxWidth, Unit: Legacy}
	if from, to := s.Slice(0, model.AllTime); from != 0 || to != math.MaxUint32 {
		t.Errorf("Slice = %d..%d, want 0..%d", from, to, uint32(math.MaxUint32))
	}
}

func TestRowRange(t *testing.T) {
	hundred := Spec{Width: 100}
	for _, test := range []struct{ start, end, lowest, highest int64 }{
		{0, 0, 0, 0},
		{150, 399, 100, 300},
		{-1, 0, -100, 0},
		{-1, -1, -100, -1},
		{-200, -199, -299, -199}, // -200 is in row -200, above -298 of -199
		{math.MinInt64, math.MaxInt64, math.MinInt64, math.MaxInt64 - 7},
	} {
		lowest, highest := hundred.RowRange(model.TimeRange{StartMS: test.start, EndMS: test.end})
		if lowest != test.lowest || highest != test.highest {
			t.Errorf("RowRange(%d, %d) = %d..%d, want %d..%d", test.start, test.end, lowest, highest, test.lowest, test.highest)
		}
	}
	// KairosDB looks from RowTime(start) to RowTime(end), and misses these.
	for _, ms := range []int64{-200, -199} {
		lowest, highest := hundred.RowRange(model.TimeRange{StartMS: -200, EndMS: -199})
		if row := hundred.RowTime(ms); row < lowest || row > highest {
			t.Errorf("row %d of %d is not read", row, ms)
		}
	}
}
