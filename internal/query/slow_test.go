package query

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/store/reference"
)

// The log keeps a fixed number of slow queries, the latest first. It is off at 0.
func TestSlowLogKeepsTheLatest(t *testing.T) {
	config := DefaultConfig()
	config.Slow = time.Nanosecond
	e := New(reference.New(nil), config, prometheus.NewRegistry(), time.Now)
	note := func(i int) {
		e.Slow().Note(nil, Done{Request: Request{Text: fmt.Sprint(i)}, Began: time.Now().Add(-time.Second)})
	}
	for i := range slowKept + 2 {
		note(i)
	}
	config.Slow = 0
	e.SetLimits(config)
	note(slowKept + 2)
	var got, want []string
	for i, q := range e.Slow().List() {
		got, want = append(got, q.Query), append(want, fmt.Sprint(slowKept+1-i))
	}
	if len(got) != slowKept || !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// What a client sends is cut in the log: its text, the names of metrics and their number.
func TestSlowLogCutsTexts(t *testing.T) {
	config := DefaultConfig()
	config.Slow = time.Nanosecond
	e := New(reference.New(nil), config, prometheus.NewRegistry(), time.Now)
	for _, more := range []int{0, 1} {
		text := strings.Repeat("t", 4096+more)
		names := slices.Repeat([]string{strings.Repeat("n", 256+more)}, 20+more)
		e.Slow().Note(nil, Done{Request: Request{Text: text}, Began: time.Now().Add(-time.Second), Metrics: func() []string { return names }, Err: errors.New(text)})
		q, end := e.Slow().List()[0], strings.Repeat("...", more)
		if q.Query != text[more:]+end || q.Error != text[more:]+end {
			t.Errorf("texts of %d bytes: a query of %d bytes, an error of %d", len(text), len(q.Query), len(q.Error))
		}
		if want := slices.Repeat([]string{names[0][more:] + end}, 20); !slices.Equal(q.Metrics, want) {
			t.Errorf("%d names of %d bytes: %q", len(names), len(names[0]), q.Metrics)
		}
	}
}
