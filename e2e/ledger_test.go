package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"varve/e2e/process"
)

// A generation counts how often a point was written again. Each write of a point
// has a different value.
type generation int8

const absent generation = -1

// A belief is what a writer knows about one point: the generation that was last
// acknowledged (absent if none was, or if a deletion was), and the write or
// deletion that is not acknowledged yet, and may or may not have happened.
type belief struct {
	now  generation
	next generation // the same as now if no write is pending
	last generation // newest that was ever sent
}

var unsent = belief{now: absent, next: absent, last: absent}

// A ledger has a writer's points in the order of their numbers. Point n belongs
// to series n % series of the writer's metric.
type ledger struct {
	metric  string
	series  int
	beliefs []belief

	// The operation that was pending when the server ended; at most one of the
	// two is set.
	streamed span  // sent by one telnet connection, in this order
	deleting []int // present points of one deletion

	caught int // number of points of the last broken stream that were found
}

// A span is the numbers from <= n < to.
type span struct{ from, to int }

func (s span) len() int { return s.to - s.from }

const (
	firstMS = 1_700_000_000_000
	stepMS  = 250 // between two samples of one series
)

// mix returns 64 pseudo-random bits for a point (splitmix64).
func (l *ledger) mix(n int) uint64 {
	x := uint64(n)*0x9e3779b97f4a7c15 + uint64(len(l.metric))<<32 + uint64(l.metric[len(l.metric)-1])
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// timeMS is the time of point n: steady with a jitter.
func (l *ledger) timeMS(n int) int64 {
	return firstMS + int64(n/l.series)*stepMS + int64(l.mix(n)%stepMS)
}

// value is the value of a generation of point n as JSON: by series a long of 64
// bits, a small counter, a double with two decimals or with many digits, or a
// string.
func (l *ledger) value(n int, g generation) string {
	x := l.mix(n) ^ uint64(g)*0x9e3779b97f4a7c15
	switch n % l.series % 5 {
	case 0:
		return strconv.FormatInt(int64(x), 10)
	case 1:
		return strconv.Itoa(n + int(g)*1_000_000_000)
	case 2:
		return strconv.FormatFloat(float64(x%1_000_000)/100+float64(g)*10_000, 'f', 2, 64)
	case 3:
		return strconv.FormatFloat(float64(x)/math.Pi, 'f', 3, 64)
	}
	return `"text ` + strconv.FormatUint(x%10_000+uint64(g)*10_000, 36) + `"`
}

// tag is the value of the tag that tells point n's series.
func (l *ledger) tag(n int) string { return strconv.Itoa(n % l.series) }

// line is the telnet line of point n in its next generation.
func (l *ledger) line(b []byte, n int) []byte {
	value := l.value(n, l.beliefs[n].next)
	verb := "putm"
	if value[0] == '"' {
		verb = "puts"
	}
	return fmt.Appendf(b, "%s %s %d %s series=%s host=e2e\n", verb, l.metric, l.timeMS(n), value, l.tag(n))
}

// body is the KairosDB JSON of points s in their next generations, one metric
// object per series.
func (l *ledger) body(s span) string {
	var b strings.Builder
	for series := range min(l.series, s.len()) {
		if series > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":%q,"tags":{"host":"e2e","series":"%s"},"datapoints":[`, l.metric, l.tag(s.from+series))
		for n := s.from + series; n < s.to; n += l.series {
			if n > s.from+series {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "[%d,%s]", l.timeMS(n), l.value(n, l.beliefs[n].next))
		}
		b.WriteString("]}")
	}
	return "[" + b.String() + "]"
}

// sending records that points are sent, each with a new value.
func (l *ledger) sending(s span) {
	for len(l.beliefs) < s.to {
		l.beliefs = append(l.beliefs, unsent)
	}
	for n := s.from; n < s.to; n++ {
		b := &l.beliefs[n]
		if b.last < math.MaxInt8 {
			b.last++
		}
		b.next = b.last
	}
}

// sent records that points were acknowledged.
func (l *ledger) sent(s span) {
	for n := s.from; n < s.to; n++ {
		l.beliefs[n].now = l.beliefs[n].next
	}
}

// erasing records that a deletion of points is sent.
func (l *ledger) erasing(numbers []int) {
	l.deleting = nil
	for _, n := range numbers {
		l.beliefs[n].next = absent
		if l.beliefs[n].now != absent {
			l.deleting = append(l.deleting, n)
		}
	}
}

// erased records that a deletion was acknowledged.
func (l *ledger) erased(numbers []int) {
	l.deleting = nil
	for _, n := range numbers {
		l.beliefs[n].now = absent
	}
}

// count returns how many points exist, as far as is known.
func (l *ledger) count() (n int) {
	for _, b := range l.beliefs {
		if b.now != absent {
			n++
		}
	}
	return n
}

// question asks for all points.
func (l *ledger) question() string {
	return fmt.Sprintf(`{"start_absolute":0,"metrics":[{"name":%q,"exclude_tags":true,"group_by":[{"name":"tag","tags":["series"]}]}]}`, l.metric)
}

// found traces each value of an answer to a generation of a point. It is an
// error if a value was never sent, was sent with another time or series, or
// occurs twice.
func (l *ledger) found(results []process.Result) ([]generation, error) {
	found := slices.Repeat([]generation{absent}, len(l.beliefs))
	for _, r := range results {
		if len(r.Values) == 0 {
			continue // a metric without points is answered by one empty result
		}
		series, err := strconv.Atoi(r.Group())
		if err != nil || series >= l.series || r.Name != l.metric {
			return nil, fmt.Errorf("%s: a group of %s with series %q was never sent", l.metric, r.Name, r.Group())
		}
		for _, v := range r.Values {
			n, g, err := l.trace(series, v)
			if err == nil && found[n] != absent {
				err = errors.New("is there twice")
			}
			if err != nil {
				return nil, fmt.Errorf("%s: value %s at %s of series %d: %w", l.metric, v[1], v[0], series, err)
			}
			found[n] = g
		}
	}
	return found, nil
}

// trace returns the number and generation of the point with this time and value.
func (l *ledger) trace(series int, v [2]json.RawMessage) (int, generation, error) {
	ms, err := strconv.ParseInt(string(v[0]), 10, 64)
	if err != nil {
		return 0, 0, err
	}
	n := int((ms-firstMS)/stepMS)*l.series + series
	if n < 0 || n >= len(l.beliefs) || l.timeMS(n) != ms {
		return 0, 0, errors.New("never sent")
	}
	b := l.beliefs[n]
	for _, g := range []generation{b.now, b.next} {
		if g != absent && sameValue(string(v[1]), l.value(n, g)) {
			return n, g, nil
		}
	}
	for g := range b.last + 1 { // an older generation, which compare reports
		if sameValue(string(v[1]), l.value(n, g)) {
			return n, g, nil
		}
	}
	return 0, 0, errors.New("a value that was never sent")
}

// sameValue compares JSON texts; doubles may be formatted differently.
func sameValue(got, want string) bool {
	if got == want {
		return true
	}
	if !strings.Contains(want, ".") {
		return false
	}
	a, errA := strconv.ParseFloat(got, 64)
	b, errB := strconv.ParseFloat(want, 64)
	return errA == nil && errB == nil && a == b
}

// compare compares an answer with the beliefs, and settles pending operations:
// once a state is seen, it must stay until the point is written or deleted
// again.
func (l *ledger) compare(results []process.Result) error {
	found, err := l.found(results)
	if err != nil {
		return err
	}
	var lost, undead, old []int
	for n, b := range l.beliefs {
		switch f := found[n]; {
		case f == b.now || f == b.next:
		case f == absent:
			lost = append(lost, n)
		case b.now == absent && b.next == absent:
			undead = append(undead, n)
		default:
			old = append(old, n)
		}
	}
	err = errors.Join(l.complain("acknowledged and not there", lost), l.complain("deleted and there", undead),
		l.complain("with an older value than was acknowledged", old), l.compareStream(found), l.compareDeletion(found))
	for n, f := range found {
		l.beliefs[n].now, l.beliefs[n].next = f, f
	}
	return err
}

// compareStream checks that of a broken telnet stream a first part exists and
// the rest does not: lines are stored in the order of arrival.
func (l *ledger) compareStream(found []generation) error {
	s := l.streamed
	l.streamed = span{}
	l.caught = 0
	for s.from < s.to && found[s.from] != absent {
		s.from++
		l.caught++
	}
	var late []int
	for n := s.from; n < s.to; n++ {
		if found[n] != absent {
			late = append(late, n)
		}
	}
	return l.complain(fmt.Sprintf("there, but %d, sent before on the same connection, is not", s.from), late)
}

// compareDeletion checks that an unacknowledged deletion was carried out
// completely or not at all.
func (l *ledger) compareDeletion(found []generation) error {
	var gone []int
	for _, n := range l.deleting {
		if found[n] == absent {
			gone = append(gone, n)
		}
	}
	half := len(gone) > 0 && len(gone) < len(l.deleting)
	total := len(l.deleting)
	l.deleting = nil
	if !half {
		return nil
	}
	return l.complain(fmt.Sprintf("gone, of %d of one deletion that was cut off", total), gone)
}

func (l *ledger) complain(what string, numbers []int) error {
	if len(numbers) == 0 {
		return nil
	}
	n := numbers[0]
	return fmt.Errorf("%s: %d points %s, numbers %d to %d; the first: series %s, time %d, generations %+v",
		l.metric, len(numbers), what, n, numbers[len(numbers)-1], l.tag(n), l.timeMS(n), l.beliefs[n])
}
