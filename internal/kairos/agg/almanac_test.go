package agg

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var wholeAlmanac = flag.Bool("query.almanac", false, "hold every sampling against the almanac at every instant, not at one in five")

// An almanac is a zone's calendar by brute force: all it knows of offsets is what the
// wall clock shows at all times from 1969 to 2101, and all it knows of the calendar is
// the lengths of the months. Buckets are compared with it.
type almanac struct {
	name      string
	zone      *time.Location
	stretches []stretch // ascending, without gaps between them
}

// A stretch is a time in which the wall clock neither jumps forward nor back. It shows
// local at the instant start.
type stretch struct{ start, end, local int64 }

func (s stretch) shows() (from, to int64) { return s.local, s.local + s.end - s.start }

const (
	almanacStart = -366 * dayMS
	almanacEnd   = 131 * 366 * dayMS
)

// face reads the wall clock: ms from 1970-01-01 00:00 to what it shows.
func face(zone *time.Location, ms int64) int64 {
	var y, mo, d, h, mi, s, frac int64
	text := time.UnixMilli(ms).In(zone).Format("2006-01-02 15:04:05.000")
	if _, err := fmt.Sscanf(text, "%d-%d-%d %d:%d:%d.%d", &y, &mo, &d, &h, &mi, &s, &frac); err != nil {
		panic(err)
	}
	return (daysTo(y)+int64(dayOfYear(y, mo)+int(d)-1))*dayMS + h*hourMS + mi*minuteMS + s*secondMS + frac
}

func leap(y int64) bool { return y%4 == 0 && y%100 != 0 || y%400 == 0 }

func monthLength(y, m int64) int64 {
	if m == 2 && leap(y) {
		return 29
	}
	return []int64{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}[m-1]
}

// daysTo counts the days from 1970 to the first day of a year, one year after
// the other.
func daysTo(y int64) (days int64) {
	for k := int64(1970); k < y; k++ {
		days += 365
		if leap(k) {
			days++
		}
	}
	for k := int64(1969); k >= y; k-- {
		days -= 365
		if leap(k) {
			days--
		}
	}
	return days
}

func dayOfYear(y, m int64) (days int) {
	for k := int64(1); k < m; k++ {
		days += int(monthLength(y, k))
	}
	return days
}

// A date is a day on the wall calendar.
type date struct{ y, m, d int64 }

func (d date) ms() int64 { return (daysTo(d.y) + int64(dayOfYear(d.y, d.m)) + d.d - 1) * dayMS }

func floorMod(a, b int64) int64 {
	if m := a % b; m < 0 {
		return m + b
	} else {
		return m
	}
}

// dateOf counts months off from the start of the year.
func dateOf(local int64) date {
	days := (local - floorMod(local, dayMS)) / dayMS
	d := date{1970 + days/366 - 1, 1, 1}
	for daysTo(d.y+1) <= days {
		d.y++
	}
	days -= daysTo(d.y)
	for ; days >= monthLength(d.y, d.m); d.m++ {
		days -= monthLength(d.y, d.m)
	}
	d.d += days
	return d
}

// newAlmanac reads the wall clock every three hours, and more often around jumps. No
// zone jumps forth and back within that time.
func newAlmanac(t testing.TB, name string) *almanac {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	a := &almanac{name: name, zone: zone}
	// Reading every face in full takes too long. Unix seconds of the face are
	// enough to see a jump; the faces themselves are read around it.
	const step = 3 * hourMS
	start, shown := int64(almanacStart), face(zone, almanacStart)
	for ms := int64(almanacStart); ms < almanacEnd; ms += step {
		if clockText(zone, ms+step) == clockText(time.UTC, ms+step+shown-start) {
			continue
		}
		low, high := ms, ms+step // the face jumps in (low, high]
		for high-low > 1 {
			middle := (low + high) / 2
			if clockText(zone, middle) == clockText(time.UTC, middle+shown-start) {
				low = middle
			} else {
				high = middle
			}
		}
		a.stretches = append(a.stretches, stretch{start, high, shown})
		start, shown = high, face(zone, high)
	}
	a.stretches = append(a.stretches, stretch{start, almanacEnd, shown})
	return a
}

// clockText is the face without its date's arithmetic: the day of the month, the
// hour, minute and second.
func clockText(zone *time.Location, ms int64) [4]int {
	t := time.UnixMilli(ms).In(zone)
	h, m, s := t.Clock()
	return [4]int{t.Day(), h, m, s}
}

// when is the instant at which the clock shows local. Of two it is that with the
// same distance from UTC as at ref, else the first. If there is none, it is
// counted on through the gap.
func (a *almanac) when(local, ref int64) int64 {
	var found []int64
	before := a.stretches[0]
	for _, s := range a.stretches {
		from, to := s.shows()
		if from <= local && local < to {
			found = append(found, s.start+local-from)
		}
		if _, shown := before.shows(); shown <= local && from > local {
			return before.start + local - before.local
		}
		before = s
	}
	for _, ms := range found {
		if ms-local == ref-a.local(ref) {
			return ms
		}
	}
	if found == nil {
		return almanacEnd // after it
	}
	return found[0]
}

func (a *almanac) stretch(ms int64) stretch {
	i, ok := slices.BinarySearchFunc(a.stretches, ms, func(s stretch, ms int64) int {
		switch {
		case s.end <= ms:
			return -1
		case s.start > ms:
			return 1
		}
		return 0
	})
	if !ok {
		panic(ms)
	}
	return a.stretches[i]
}

func (a *almanac) local(ms int64) int64 {
	s := a.stretch(ms)
	return s.local + ms - s.start
}

// aligned is where buckets begin that are aligned to a unit.
func (a *almanac) aligned(ms int64, u Unit) int64 {
	if u == Milliseconds {
		return ms - floorMod(ms, 1000)
	}
	d := dateOf(a.local(ms))
	switch u {
	case Weeks:
		for floorMod(d.ms()/dayMS, 7) != 4 { // 1970-01-01 was a Thursday
			d = dateOf(d.ms() - dayMS)
		}
	case Months:
		d.d = 1
	case Years:
		d.m, d.d = 1, 1
	}
	// The first instant of the day; if there are two, the one that ms counts from.
	start := a.when(d.ms(), ms)
	if a.local(start) != d.ms() {
		return a.stretch(start).start
	}
	return start
}

// boundary is k samplings after an origin.
func (a *almanac) boundary(origin, k int64, s Sampling) int64 {
	n := k * s.Value
	if f := s.Unit.fixedMS(); f > 0 {
		return origin + n*f
	}
	local := a.local(origin)
	switch s.Unit {
	case Days:
		return a.when(local+n*dayMS, origin)
	case Weeks:
		return a.when(local+n*7*dayMS, origin)
	case Years:
		n *= 12
	}
	d := dateOf(local)
	month := d.y*12 + d.m - 1 + n
	d.y, d.m = month/12, month%12+1
	d.d = min(d.d, monthLength(d.y, d.m))
	return a.when(d.ms()+floorMod(local, dayMS), origin)
}

// Zones with half and quarter hours, clocks that jump at midnight, days that do
// not exist or exist twice, jumps of half an hour, of 45 minutes, and of seconds.
var almanacZones = []string{
	"UTC", "Europe/Berlin", "Europe/London", "America/New_York", "America/Sao_Paulo", "America/St_Johns", "America/Havana",
	"America/Caracas", "Africa/Cairo", "Africa/Monrovia", "Africa/Casablanca", "Asia/Kolkata", "Asia/Kathmandu", "Asia/Tehran",
	"Asia/Beirut", "Asia/Pyongyang", "Australia/Lord_Howe", "Australia/Eucla", "Pacific/Apia", "Pacific/Chatham", "Pacific/Kiritimati",
	"Pacific/Kwajalein", "America/Asuncion", "Antarctica/Troll",
}

var everyUnit = []Sampling{
	{250, Milliseconds}, {1, Milliseconds}, {1, Seconds}, {45, Seconds}, {1, Minutes}, {7, Minutes}, {1, Hours}, {5, Hours},
	{1, Days}, {3, Days}, {1, Weeks}, {2, Weeks}, {1, Months}, {5, Months}, {1, Years}, {4, Years},
}

// instants are where buckets go wrong, if anywhere: around each jump of the
// clock, the turns of years, and a few at random.
func (a *almanac) instants(random *rand.Rand) (list []int64) {
	const low, high = 0, 130 * 365 * dayMS // 1970 to 2100
	for _, s := range a.stretches[1:] {
		for _, d := range []int64{-25 * hourMS, -hourMS, -1, 0, 1, 29 * minuteMS, 3 * hourMS, 23 * hourMS, 40 * dayMS} {
			list = append(list, s.start+d)
		}
	}
	for y := int64(1970); y <= 2100; y += 10 {
		at := daysTo(y) * dayMS
		list = append(list, at, at+59*dayMS, at+181*dayMS+12345678)
	}
	for range 30 {
		list = append(list, low+random.Int64N(high))
	}
	return slices.DeleteFunc(list, func(ms int64) bool { return ms < low || ms > high })
}

// Buckets of all units, aligned and not, are those of the almanac.
func TestAlmanac(t *testing.T) {
	for _, name := range almanacZones {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, random := newAlmanac(t, name), rand.New(rand.NewPCG(7, 7))
			checked := 0
			for i, at := range a.instants(random) {
				for j, s := range everyUnit {
					if !*wholeAlmanac && (i+j)%5 > 0 {
						continue
					}
					for _, align := range []bool{true, false} {
						checked += a.checkBuckets(t, at, s, align, random)
						if t.Failed() {
							return
						}
					}
				}
			}
			if checked < 1000 {
				t.Errorf("only %d buckets", checked)
			}
		})
	}
}

// checkBuckets compares some buckets of a query that begins at a time.
func (a *almanac) checkBuckets(t *testing.T, at int64, s Sampling, align bool, random *rand.Rand) (checked int) {
	b := &buckets{cal: calendar{a.zone}, sampling: s, originMS: at}
	origin := at
	if align {
		b.originMS, origin = b.cal.alignDown(at, s.Unit), a.aligned(at, s.Unit)
	}
	if b.originMS != origin {
		t.Errorf("%s: %v of %s aligned begin at %s, want %s", a.name, s.Unit, a.text(at), a.text(b.originMS), a.text(origin))
		return
	}
	for _, k := range []int64{0, 1, 2, random.Int64N(40)} {
		start, end := a.boundary(origin, k, s), a.boundary(origin, k+1, s)
		if end > almanacEnd-400*dayMS || end <= start { // nothing falls into a day that does not exist
			continue
		}
		for _, ms := range []int64{start, (start + end) / 2, end - 1} {
			if got := b.find(ms); got != (bucket{start, end - 1}) {
				t.Errorf("%s: %v from %s: %s is in [%s, %s), want [%s, %s)", a.name, s, a.text(origin), a.text(ms),
					a.text(got.startMS), a.text(got.endMS()), a.text(start), a.text(end))
				return
			}
			checked++
		}
	}
	return checked
}

func (a *almanac) text(ms int64) string {
	return time.UnixMilli(ms).In(a.zone).Format("2006-01-02T15:04:05.000-07:00")
}

// The grid of roll-ups cuts 131 years into the almanac's days, weeks, months and
// years.
func TestAlmanacYears(t *testing.T) {
	for _, name := range almanacZones {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAlmanac(t, name)
			for _, u := range []Unit{Days, Weeks, Months, Years} {
				s := Sampling{1, u}
				g, origin := NewGrid(s, a.zone), a.aligned(-a.local(0), u)
				at := origin
				for k := int64(1); at < 130*365*dayMS; k++ {
					want := a.boundary(origin, k, s)
					if want == at { // a day that does not exist
						continue
					}
					if got := g.Next(at); got != want || g.Start(want-1) != at {
						t.Fatalf("%v: [%s, %s), want [%s, %s)", u, a.text(g.Start(want-1)), a.text(got), a.text(at), a.text(want))
					}
					at = want
				}
			}
		})
	}
}
