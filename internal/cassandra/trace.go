package cassandra

import (
	"slices"

	"varve/internal/store"
)

// Trace implements store.Tracer. Counts of a cluster that is only read are prefixed with
// its name.
func (v *view) Trace() []store.Count {
	var counts []store.Count
	for i, k := range v.keyspaces {
		if k.look == nil {
			continue
		}
		of := k.look.Counts()
		asked := slices.ContainsFunc(of, func(c store.Count) bool { return c.N != 0 })
		if i > 0 && !asked {
			continue
		}
		for _, c := range of {
			if i > 0 {
				c.Name = k.cluster.name + "." + c.Name
			}
			counts = append(counts, c)
		}
	}
	return counts
}
