package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"varve/e2e/process"
)

// A fate is what is known of one point.
type fate uint8

const (
	unsent fate = iota
	open        // sent or being deleted, and not acknowledged: it may exist or not
	stored      // acknowledged
	erased      // its deletion was acknowledged
)

const (
	stepMS    = 2000 // between two points of a series
	eraPoints = 700  // number of points after which all series of a metric are replaced by new ones
)

// A ledger has the points of one metric in the order of their numbers. Point n
// belongs to series n % series of its era, n / eraPoints. Time and value follow
// from the number; no two values are the same.
type ledger struct {
	metric  string
	series  int
	firstMS int64
	padding int // bytes of texts

	mu     sync.Mutex
	points []fate
}

// A span is the numbers from <= n < to.
type span struct{ from, to int }

func (l *ledger) timeMS(n int) int64 { return l.firstMS + int64(n/l.series)*stepMS + int64(n%l.series) }

// value is the value of point n as JSON: by series a long, a double or a text.
func (l *ledger) value(n int) string {
	switch n % l.series % 3 {
	case 0:
		return strconv.FormatInt(int64(n)*-7919, 10)
	case 1:
		return strconv.FormatFloat(float64(n)+0.25, 'f', -1, 64)
	}
	text := "text " + strconv.Itoa(n)
	for i := 0; len(text) < l.padding; i++ {
		text += " " + strconv.FormatUint(uint64(n*31+i)*0x9e3779b97f4a7c15, 36)
	}
	return strconv.Quote(text)
}

// body is the KairosDB JSON of points.
func (l *ledger) body(s span) string {
	var b strings.Builder
	for n := s.from; n < s.to; n++ {
		fmt.Fprintf(&b, `,{"name":%q,"tags":{"series":"%d","era":"%d"},"datapoints":[[%d,%s]]}`,
			l.metric, n%l.series, n/eraPoints, l.timeMS(n), l.value(n))
	}
	return "[" + b.String()[1:] + "]"
}

// next reserves the numbers of n new points, which count as sent from now on.
func (l *ledger) next(n int) span {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := span{len(l.points), len(l.points) + n}
	for range n {
		l.points = append(l.points, open)
	}
	return s
}

func (l *ledger) set(s span, f fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := s.from; n < s.to; n++ {
		l.points[n] = f
	}
}

// post sends points and records whether they were acknowledged.
func (l *ledger) post(ctx context.Context, s *process.Server, numbers span) error {
	_, err := s.Want(ctx, http.StatusNoContent, "POST", "/api/v1/datapoints", l.body(numbers))
	if err == nil {
		l.set(numbers, stored)
	}
	return err
}

// erase deletes points, whole steps of time.
func (l *ledger) erase(ctx context.Context, s *process.Server, numbers span) error {
	l.set(numbers, open)
	_, err := s.Want(ctx, http.StatusNoContent, "POST", "/api/v1/datapoints/delete",
		fmt.Sprintf(`{"start_absolute":%d,"end_absolute":%d,"metrics":[{"name":%q}]}`, l.timeMS(numbers.from), l.timeMS(numbers.to-1), l.metric))
	if err == nil {
		l.set(numbers, erased)
	}
	return err
}

func (l *ledger) count(f fate) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.points {
		if p == f {
			n++
		}
	}
	return n
}

// all returns all numbers, in whole steps of time.
func (l *ledger) all() span {
	l.mu.Lock()
	defer l.mu.Unlock()
	return span{0, len(l.points)}
}

// A findingError means that a server's answer is wrong; other errors mean that
// there was no answer.
type findingError struct{ err error }

func (e *findingError) Error() string { return e.err.Error() }
func (e *findingError) Unwrap() error { return e.err }

// check queries points, all at once, and compares the answer with what was
// known before the query: only points that were open may be missing, and no
// point may exist that was never sent.
func (l *ledger) check(ctx context.Context, s *process.Server, numbers span) error {
	return l.ask(ctx, s, numbers, "")
}

// checkEach reads each series with selective queries, by series and era.
func (l *ledger) checkEach(ctx context.Context, s *process.Server, numbers span) error {
	for from := numbers.from; from < numbers.to; {
		era := from / eraPoints
		until := min(numbers.to, (era+1)*eraPoints)
		for series := range l.series {
			filter := fmt.Sprintf(`,"tags":{"series":["%d"],"era":["%d"]}`, series, era)
			if err := l.ask(ctx, s, span{from, until}, filter); err != nil {
				return err
			}
		}
		from = until
	}
	return nil
}

func (l *ledger) ask(ctx context.Context, s *process.Server, numbers span, filter string) error {
	l.mu.Lock()
	before := append([]fate(nil), l.points[numbers.from:numbers.to]...)
	l.mu.Unlock()
	if len(before) == 0 {
		return nil
	}
	results, err := s.Query(ctx, fmt.Sprintf(`{"start_absolute":%d,"end_absolute":%d,"metrics":[{"name":%q%s,"exclude_tags":true,"group_by":[{"name":"tag","tags":["series"]}]}]}`,
		l.timeMS(numbers.from), l.timeMS(numbers.to-1), l.metric, filter))
	if err != nil {
		return err
	}
	asked := func(n int) bool { return true }
	if filter != "" {
		asked = func(n int) bool {
			return filter == fmt.Sprintf(`,"tags":{"series":["%d"],"era":["%d"]}`, n%l.series, n/eraPoints)
		}
	}
	if err := l.compare(results, numbers, before, asked); err != nil {
		return &findingError{err}
	}
	return nil
}

// compare compares an answer with the fates of numbers.
func (l *ledger) compare(results []process.Result, numbers span, before []fate, asked func(n int) bool) error {
	there := make([]bool, len(before))
	for _, r := range results {
		if len(r.Values) == 0 {
			continue // a metric without points is answered by one empty result
		}
		series, err := strconv.Atoi(r.Group())
		if err != nil || series >= l.series || r.Name != l.metric {
			return fmt.Errorf("%s: a group of %s with series %q was never sent", l.metric, r.Name, r.Group())
		}
		for _, v := range r.Values {
			n, err := l.trace(series, v, numbers)
			if err == nil && there[n-numbers.from] {
				err = errors.New("is there twice")
			}
			if err == nil && !asked(n) {
				err = errors.New("was not asked for")
			}
			if err != nil {
				return fmt.Errorf("%s: value %s at %s of series %d: %w", l.metric, v[1], v[0], series, err)
			}
			there[n-numbers.from] = true
		}
	}
	var lost, undead []int
	for i, f := range before {
		switch n := numbers.from + i; {
		case !asked(n):
		case f == stored && !there[i]:
			lost = append(lost, n)
		case f == erased && there[i]:
			undead = append(undead, n)
		}
	}
	return errors.Join(l.complain("acknowledged and not there", lost), l.complain("deleted and there", undead))
}

// trace returns the number of the point with this time and value.
func (l *ledger) trace(series int, v [2]json.RawMessage, numbers span) (int, error) {
	ms, err := strconv.ParseInt(string(v[0]), 10, 64)
	if err != nil {
		return 0, err
	}
	n := int((ms-l.firstMS)/stepMS)*l.series + series
	if n < numbers.from || n >= numbers.to || l.timeMS(n) != ms {
		return 0, errors.New("never sent, or not asked for")
	}
	if got, want := string(v[1]), l.value(n); got != want {
		return 0, fmt.Errorf("the value %s was sent", want)
	}
	return n, nil
}

func (l *ledger) complain(what string, numbers []int) error {
	if len(numbers) == 0 {
		return nil
	}
	n := numbers[0]
	return fmt.Errorf("%s: %d points %s, numbers %d to %d; the first: series %d, era %d, %s",
		l.metric, len(numbers), what, n, numbers[len(numbers)-1], n%l.series, n/eraPoints, time.UnixMilli(l.timeMS(n)).UTC().Format(time.RFC3339Nano))
}

// written returns an error until n points were sent.
func written(l *ledger, n int) error {
	if to := l.all().to; to < n {
		return fmt.Errorf("%d points were sent, want %d", to, n)
	}
	return nil
}
