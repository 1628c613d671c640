package query

import (
	"fmt"
	"slices"
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
