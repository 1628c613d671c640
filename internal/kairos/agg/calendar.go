package agg

import (
	"math"
	"time"

	"varve/internal/model"
)

// A calendar does arithmetic on wall-clock time in a zone the way KairosDB (Joda time)
// does.
//
//   - Hours and shorter are elapsed time.
//   - Days and weeks are added to the local time, so a day may last 23 or 25 hours.
//     Months and years keep the day of the month, clipped to the month's length.
//   - A local time that does not exist is moved forward by the length of the gap: 02:30
//     becomes 03:30. One that exists twice keeps the offset of the instant the
//     arithmetic started from, if that is one of the two.
type calendar struct{ zone *time.Location }

// maxCalendarMS bounds the times that calendar units are computed for; times beyond
// about 290,000 years are clamped to it.
const maxCalendarMS = 9_000_000_000_000_000

func clampMS(ms int64) int64 { return min(max(ms, -maxCalendarMS), maxCalendarMS) }

// offsetMS is the zone's distance from UTC at an instant, in ms.
func (c calendar) offsetMS(ms int64) int64 {
	_, offset := time.UnixMilli(ms).In(c.zone).Zone()
	return int64(offset) * 1000
}

// local returns the wall clock at an instant, as if it were UTC.
func (c calendar) local(ms int64) int64 { return ms + c.offsetMS(ms) }

// instant returns when the wall clock shows local. If it does so twice, offset is
// preferred.
func (c calendar) instant(local, offset int64) int64 {
	if ms := local - offset; c.offsetMS(ms) == offset {
		return ms
	}
	before, after := c.offsetMS(local-dayMS), c.offsetMS(local+dayMS)
	for _, o := range [2]int64{before, after} {
		if ms := local - o; c.offsetMS(ms) == o {
			return ms
		}
	}
	return local - before // in a gap: with the offset from before it, the instant falls after it
}

// startOfDay returns the first instant of the day whose midnight is local. A gap may
// have begun before midnight, or skipped the whole day.
func (c calendar) startOfDay(local, offset int64) int64 {
	ms := c.instant(local, offset)
	if c.local(ms) == local {
		return ms
	}
	if start, _ := time.UnixMilli(ms).In(c.zone).ZoneBounds(); !start.IsZero() {
		return start.UnixMilli()
	}
	return ms
}

// add returns ms plus n units.
func (c calendar) add(ms, n int64, u Unit) int64 {
	if f := u.fixedMS(); f > 0 {
		return saturatingAdd(ms, saturatingMul(n, f))
	}
	offset := c.offsetMS(clampMS(ms))
	local := clampMS(ms) + offset
	switch u {
	case Days:
		local = saturatingAdd(local, saturatingMul(n, dayMS))
	case Weeks:
		local = saturatingAdd(local, saturatingMul(n, weekMS))
	case Months:
		local = addMonths(local, n)
	case Years:
		local = addMonths(local, saturatingMul(n, 12))
	}
	return c.instant(clampMS(local), offset)
}

// maxMonths is more months than fit between two clamped times.
const maxMonths = 12 * 1_000_000

// addMonths moves a local time by n months and clips the day of the month.
func addMonths(local, n int64) int64 {
	n = min(max(n, -maxMonths), maxMonths)
	t := time.UnixMilli(local).UTC()
	year, month, day := t.Date()
	inDay := local - model.Floor(local, dayMS)
	first := time.Date(year, month+time.Month(n), 1, 0, 0, 0, 0, time.UTC)
	length := time.Date(first.Year(), first.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
	return first.AddDate(0, 0, min(day, length)-1).UnixMilli() + inDay
}

// unitsBetween estimates how many units lie between two instants, from <= to; it is off
// by at most one.
func (c calendar) unitsBetween(from, to int64, u Unit) int64 {
	if f := u.fixedMS(); f > 0 {
		return int64(min((uint64(to)-uint64(from))/uint64(f), math.MaxInt64))
	}
	a, b := c.local(clampMS(from)), c.local(clampMS(to))
	switch u {
	case Days:
		return (b - a) / dayMS
	case Weeks:
		return (b - a) / weekMS
	}
	x, y := time.UnixMilli(a).UTC(), time.UnixMilli(b).UTC()
	months := int64(y.Year()-x.Year())*12 + int64(y.Month()) - int64(x.Month())
	if u == Years {
		return months / 12
	}
	return months
}

// between returns the largest n >= 0 with from plus n units <= to.
func (c calendar) between(from, to int64, u Unit) int64 {
	n := c.unitsBetween(from, to, u)
	if u.fixedMS() > 0 {
		return n
	}
	for n > 0 && c.add(from, n, u) > to {
		n--
	}
	for c.add(from, n+1, u) <= min(to, maxCalendarMS-2*dayMS) {
		n++
	}
	return n
}

// alignDown moves an instant back to the beginning of a bucket of the unit. Hours,
// minutes and seconds begin at midnight, as in KairosDB.
func (c calendar) alignDown(ms int64, u Unit) int64 {
	ms = clampMS(ms)
	if u == Milliseconds {
		return model.Floor(ms, secondMS)
	}
	offset := c.offsetMS(ms)
	midnight := model.Floor(ms+offset, dayMS)
	t := time.UnixMilli(midnight).UTC()
	switch u {
	case Weeks:
		midnight -= int64((t.Weekday()+6)%7) * dayMS
	case Months:
		midnight -= int64(t.Day()-1) * dayMS
	case Years:
		midnight -= int64(t.YearDay()-1) * dayMS
	}
	return c.startOfDay(midnight, offset)
}

func saturatingAdd(a, b int64) int64 {
	s := a + b
	switch {
	case a > 0 && b > 0 && s < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && s >= 0:
		return math.MinInt64
	}
	return s
}

func saturatingMul(a, b int64) int64 {
	if a == 0 || b == 0 {
		return 0
	}
	p := a * b
	if p/b != a || (a == -1 && b == math.MinInt64) || (b == -1 && a == math.MinInt64) {
		if (a < 0) != (b < 0) {
			return math.MinInt64
		}
		return math.MaxInt64
	}
	return p
}

// Ago returns the instant n units before ms by the UTC calendar, with the day
// of the month clipped: KairosDB's relative times.
func Ago(ms, n int64, u Unit) int64 {
	return calendar{time.UTC}.add(ms, -n, u)
}
