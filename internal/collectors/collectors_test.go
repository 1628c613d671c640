package collectors

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestRegister(t *testing.T) {
	r := prometheus.NewRegistry()
	newCounter := func(name string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name})
	}
	taken := newCounter("taken")
	r.MustRegister(taken)
	all := []prometheus.Collector{newCounter("a"), newCounter("b"), newCounter("taken")}
	if _, err := Register(r, all); err == nil {
		t.Error("a name was taken twice")
	}
	unregister, err := Register(r, all[:2])
	if err != nil {
		t.Fatal("after one that failed: ", err)
	}
	unregister()
	if found, err := r.Gather(); err != nil || len(found) != 1 {
		t.Errorf("left: %v, %v", found, err)
	}
}
