package cassandra

import (
	"varve/internal/model"
	"varve/internal/store"
)

// heldOf collects the spool's samples of a series in the range, the newest of each
// time. It includes expired samples, since they hide older ones in the keyspaces.
func (v *view) heldOf(sel selected, o store.ReadOptions) (held model.Columns, err error) {
	var run, spare model.Columns
	for _, id := range sel.pending {
		runs, err := v.pending.Runs(id, o.Range)
		if err != nil {
			return held, err
		}
		for i := range runs {
			run.Reset()
			if err := runs[i].DecodeAll(&run); err != nil {
				return held, err
			}
			from, to := run.Within(o.Range)
			held.Append(&run, from, to)
		}
	}
	var sorter model.Sorter
	sorter.Sort(sel.series.Type.Kind(), &held)
	if o.Descending {
		held.Reverse(&spare)
	}
	return held, nil
}

// expired reports whether a sample has expired.
func expired(cols *model.Columns, i int, nowMS int64) bool {
	return model.ExpiryMS(cols.Times[i], cols.TTL(i)) <= nowMS
}

// countExpired returns how many samples have expired.
func countExpired(cols *model.Columns, nowMS int64) (n int) {
	for i := range cols.TTLs {
		if expired(cols, i, nowMS) {
			n++
		}
	}
	return n
}
