package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A belief is what a writer knows of one point.
type belief uint8

const (
	absent  belief = iota // never sent, or deleted and the deletion acknowledged
	present               // acknowledged
	either                // sent or deleted, and not told how that went
)

// A ledger has a writer's points in the order of their numbers. Point n belongs
// to series n % series of the writer's metric.
type ledger struct {
	metric  string
	series  int
	beliefs []belief

	// What was under way when the server ended, at most one of the two.
	streamed span  // sent by one telnet connection, in this order
	deleting []int // present points of one deletion

	caught int // points of the last broken stream that were found
}

// A span is the numbers from <= n < to.
type span struct{ from, to int }

func (s span) len() int { return s.to - s.from }

const (
	firstMS = 1_700_000_000_000
	stepMS  = 250 // between two samples of one series
)

// mix makes a number of 64 random-looking bits of a point (splitmix64).
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

// value is the value of point n as JSON: by series a long of 64 bits, a small
// counter, a double with two decimals or with all digits, or a string.
func (l *ledger) value(n int) string {
	x := l.mix(n)
	switch n % l.series % 5 {
	case 0:
		return strconv.FormatInt(int64(x), 10)
	case 1:
		return strconv.Itoa(n)
	case 2:
		return strconv.FormatFloat(float64(x%1_000_000)/100, 'f', 2, 64)
	case 3:
		return strconv.FormatFloat(float64(x)/math.Pi, 'f', 3, 64)
	}
	return `"text ` + strconv.FormatUint(x%10_000, 36) + `"`
}

// tags are the tags of series s but for the writer's name.
func (l *ledger) tag(n int) string { return strconv.Itoa(n % l.series) }

// line is the telnet line of point n.
func (l *ledger) line(b []byte, n int) []byte {
	verb := "putm"
	if l.value(n)[0] == '"' {
		verb = "puts"
	}
	return fmt.Appendf(b, "%s %s %d %s series=%s host=e2e\n", verb, l.metric, l.timeMS(n), l.value(n), l.tag(n))
}

// body is the KairosDB JSON of points s, one metric object per series.
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
			fmt.Fprintf(&b, "[%d,%s]", l.timeMS(n), l.value(n))
		}
		b.WriteString("]}")
	}
	return "[" + b.String() + "]"
}

// grow makes room for points up to, not including, to.
func (l *ledger) grow(to int) {
	if add := to - len(l.beliefs); add > 0 {
		l.beliefs = append(l.beliefs, make([]belief, add)...)
	}
}

// sending notes that points are sent; what was absent can be there from now on.
func (l *ledger) sending(s span) {
	l.grow(s.to)
	for n := s.from; n < s.to; n++ {
		if l.beliefs[n] == absent {
			l.beliefs[n] = either
		}
	}
}

// sent notes that points were acknowledged.
func (l *ledger) sent(s span) {
	for n := s.from; n < s.to; n++ {
		l.beliefs[n] = present
	}
}

// erasing notes that a deletion of points is sent.
func (l *ledger) erasing(numbers []int) {
	l.deleting = nil
	for _, n := range numbers {
		if l.beliefs[n] == present {
			l.beliefs[n] = either
			l.deleting = append(l.deleting, n)
		}
	}
}

// erased notes that it was acknowledged.
func (l *ledger) erased(numbers []int) {
	l.deleting = nil
	for _, n := range numbers {
		l.beliefs[n] = absent
	}
}

// count returns how many points are believed to be there.
func (l *ledger) count() (n int) {
	for _, b := range l.beliefs {
		if b == present {
			n++
		}
	}
	return n
}

// question asks for all points.
func (l *ledger) question() string {
	return fmt.Sprintf(`{"start_absolute":0,"metrics":[{"name":%q,"exclude_tags":true,"group_by":[{"name":"tag","tags":["series"]}]}]}`, l.metric)
}

// found traces each value of an answer to a point. Errors are values that were
// never sent, or at another time, or in another series, or twice.
func (l *ledger) found(results []result) ([]bool, error) {
	found := make([]bool, len(l.beliefs))
	for _, r := range results {
		if len(r.Values) == 0 {
			continue // a metric without points is answered by one empty result
		}
		series, err := strconv.Atoi(r.group())
		if err != nil || series >= l.series || r.Name != l.metric {
			return nil, fmt.Errorf("%s: a group of %s with series %q was never sent", l.metric, r.Name, r.group())
		}
		for _, v := range r.Values {
			n, err := l.trace(series, v)
			if err == nil && found[n] {
				err = fmt.Errorf("is there twice")
			}
			if err != nil {
				return nil, fmt.Errorf("%s: value %s at %s of series %d: %w", l.metric, v[1], v[0], series, err)
			}
			found[n] = true
		}
	}
	return found, nil
}

// trace returns the number of the point with this time and value.
func (l *ledger) trace(series int, v [2]json.RawMessage) (int, error) {
	ms, err := strconv.ParseInt(string(v[0]), 10, 64)
	if err != nil {
		return 0, err
	}
	n := int((ms-firstMS)/stepMS)*l.series + series
	if n < 0 || n >= len(l.beliefs) || l.timeMS(n) != ms {
		return 0, errors.New("never sent")
	}
	if want := l.value(n); !sameValue(string(v[1]), want) {
		return 0, fmt.Errorf("want value %s", want)
	}
	return n, nil
}

// sameValue compares JSON texts; doubles may be written in other ways.
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

// compare holds an answer against the beliefs and resolves what was open: a
// point that is once seen or once missed stays so until it is written again.
func (l *ledger) compare(results []result) error {
	found, err := l.found(results)
	if err != nil {
		return err
	}
	var lost, undead []int
	for n, b := range l.beliefs {
		switch {
		case b == present && !found[n]:
			lost = append(lost, n)
		case b == absent && found[n]:
			undead = append(undead, n)
		}
	}
	err = errors.Join(l.complain("acknowledged and not there", lost), l.complain("deleted or never sent, and there", undead),
		l.compareStream(found), l.compareDeletion(found))
	for n, b := range l.beliefs {
		if b != either {
			continue
		}
		l.beliefs[n] = absent
		if found[n] {
			l.beliefs[n] = present
		}
	}
	return err
}

// compareStream wants that of a telnet stream that broke a first part is there
// and the rest is not: lines are stored in the order they come in.
func (l *ledger) compareStream(found []bool) error {
	s := l.streamed
	l.streamed = span{}
	l.caught = 0
	for s.from < s.to && found[s.from] {
		s.from++
		l.caught++
	}
	var late []int
	for n := s.from; n < s.to; n++ {
		if found[n] {
			late = append(late, n)
		}
	}
	return l.complain(fmt.Sprintf("there, but %d, sent before on the same connection, is not", s.from), late)
}

// compareDeletion wants that a deletion nobody heard of again was carried out
// wholly or not at all.
func (l *ledger) compareDeletion(found []bool) error {
	var gone []int
	for _, n := range l.deleting {
		if !found[n] {
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
	return fmt.Errorf("%s: %d points %s, numbers %d to %d; the first: series %s, time %d, value %s",
		l.metric, len(numbers), what, n, numbers[len(numbers)-1], l.tag(n), l.timeMS(n), l.value(n))
}
