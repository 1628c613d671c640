package store_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"varve/internal/model"
	"varve/internal/store"
)

// The memory of a deletion is not estimated by its length: a short pattern takes a kilobyte, and one that repeats
// a class a hundred.
func TestMemoryOfDeletions(t *testing.T) {
	patterns := func(n int, format string) (m model.Matcher) {
		for i := range n {
			p, err := model.NewPattern(fmt.Sprintf(format, i))
			if err != nil {
				t.Fatal(err)
			}
			m.Patterns = append(m.Patterns, p)
		}
		return m
	}
	for name, matchers := range map[string]func() []model.Matcher{
		"values": func() []model.Matcher {
			var m model.Matcher
			for i := range 50_000 {
				m.Values = append(m.Values, fmt.Sprint(i))
			}
			return []model.Matcher{m}
		},
		"tags": func() (ms []model.Matcher) {
			for i := range 50_000 {
				ms = append(ms, model.Matcher{Tag: fmt.Sprint("t", i), Values: []string{"v"}})
			}
			return ms
		},
		"patterns":      func() []model.Matcher { return []model.Matcher{patterns(10_000, "a%.0d")} },
		"long patterns": func() []model.Matcher { return []model.Matcher{patterns(1000, "a[bc]*x%040d")} },
		"repetitions":   func() []model.Matcher { return []model.Matcher{patterns(300, "[^x%d]{400}")} },
		"classes":       func() []model.Matcher { return []model.Matcher{patterns(300, `\pL\pL%d`)} },
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		del := store.Deletion{Matchers: matchers()}
		sorted := slices.Clone(del.Matchers) // a delete sorts the values
		for i := range sorted {
			sorted[i].Values = slices.Sorted(slices.Values(sorted[i].Values))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		took := int(after.HeapAlloc) - int(before.HeapAlloc)
		if n := del.Memory(); took > 2*n || n > 3*took {
			t.Errorf("%s: %d bytes, estimated %d", name, took, n)
		}
		runtime.KeepAlive(sorted)
	}
}
