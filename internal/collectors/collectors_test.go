package collectors

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestRegister(t *testing.T) {
	r := prometheus.NewRegistry()
	set := func(names ...string) *Set {
		s := Named("of_a_part_")
		for _, name := range names {
			s.Counter(name, "")
		}
		return s
	}
	set("taken").MustRegister(r)
	if _, err := set("a", "b", "taken").Register(r); err == nil {
		t.Error("a name was taken twice")
	}
	unregister, err := set("a", "b").Register(r)
	if err != nil {
		t.Fatal("after one that failed: ", err)
	}
	unregister()
	if found, err := r.Gather(); err != nil || len(found) != 1 {
		t.Errorf("left: %v, %v", found, err)
	}
}
