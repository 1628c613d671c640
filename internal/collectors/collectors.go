// Package collectors registers the metrics of a part of the server: all of them or
// none, and for as long as that part is there.
package collectors

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Register registers collectors, all or none, and returns what takes them back, which
// may be called more than once: it does nothing then, since others may have registered
// the same names meanwhile. Without a registerer nothing is done.
func Register(r prometheus.Registerer, all []prometheus.Collector) (unregister func(), err error) {
	if r == nil {
		return func() {}, nil
	}
	take := func(some []prometheus.Collector) {
		for _, c := range some {
			r.Unregister(c)
		}
	}
	for i, c := range all {
		if err := r.Register(c); err != nil {
			take(all[:i])
			return nil, err
		}
	}
	return sync.OnceFunc(func() { take(all) }), nil
}
