package cassandra

import (
	"varve/internal/model"
	"varve/internal/store"
)

// heldOf collects the spool's samples of a series in the range, the newest of each
// time. It includes expired samples, since they hide older ones in the keyspaces. After an
// outage, there may be any number of them, so their bytes are taken from the memory of the
// request. The caller must release these, also after an error.
func (v *view) heldOf(sel selected, o store.ReadOptions) (held model.Columns, bytes int64, err error) {
	var run, spare model.Columns
	for _, id := range sel.pending {
		runs, err := v.pending.Runs(id, o.Range)
		if err != nil {
			return held, bytes, err
		}
		for i := range runs {
			run.Reset()
			if err := runs[i].DecodeAll(&run); err != nil {
				return held, bytes, err
			}
			from, to := run.Within(o.Range)
			held.Append(&run, from, to)
			more := held.Memory() - bytes
			if err := v.hold(more); err != nil {
				return held, bytes, err
			}
			bytes += more
		}
	}
	var sorter model.Sorter
	sorter.Sort(sel.series.Type.Kind(), &held)
	if o.Descending {
		held.Reverse(&spare)
	}
	return held, bytes, nil
}

// hold takes memory for what the request keeps, or gives some back.
func (v *view) hold(bytes int64) error {
	if hold, ok := v.holder.Load().(func(bytes int64) error); ok && bytes != 0 {
		return hold(bytes)
	}
	return nil
}

// release gives memory back, which does not fail.
func (v *view) release(bytes int64) { _ = v.hold(-bytes) }

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
