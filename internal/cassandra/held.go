package cassandra

import (
	"math"

	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/store"
)

// heldOf collects the spool's samples of a series in the range, the newest of each
// time. They have the times at which they are stored, so that they replace their copies if the
// keyspace has these already. It includes expired samples, since they hide older ones in the
// keyspaces. After an outage, there may be any number of them, so their bytes are taken from the
// memory of the request. The caller must release these, also after an error.
func (v *view) heldOf(sel selected, o store.ReadOptions) (held model.Columns, bytes int64, err error) {
	var samples, spare model.Columns
	scratch := int64(0) // bytes held only until heldOf returns
	defer func() { v.release(scratch) }()
	work := func(bytes int64) error {
		more := bytes - scratch
		if more < head.ReserveStep {
			return nil
		}
		if err := v.hold(more); err != nil {
			return err
		}
		scratch += more
		return nil
	}
	for _, id := range sel.pending {
		for run, err := range v.pending.Runs(id, v.sent(o.Range), v.cuts != nil, v.hold) {
			if err != nil {
				return held, bytes, err
			}
			samples.Reset()
			if err := run.DecodeAll(&samples); err != nil {
				return held, bytes, err
			}
			if err := work(2 * samples.Memory()); err != nil { // with what cut drops
				return held, bytes, err
			}
			from, to := samples.Within(o.Range)
			if v.cuts != nil {
				v.cut(&samples, &spare, o.Range, v.current || o.Exact)
				from, to = 0, samples.Len()
			}
			held.Append(&samples, from, to)
			more := held.Memory() - bytes
			if err := v.hold(more); err != nil {
				return held, bytes, err
			}
			bytes += more
		}
	}
	if err := work(bytes); err != nil { // they are sorted into other memory
		return held, bytes, err
	}
	var sorter model.Sorter
	sorter.Sort(sel.series.Type.Kind(), &held)
	if o.Descending {
		held.Reverse(&spare)
	}
	return held, bytes, nil
}

// cutMost is the most by which the stored time of a sample is earlier than its own.
const cutMost = 999

// sent returns the range of the samples' own times whose stored times may be in r.
func (v *view) sent(r model.TimeRange) model.TimeRange {
	if v.cuts == nil {
		return r
	}
	return model.TimeRange{StartMS: max(r.StartMS, math.MinInt64+cutMost) - cutMost, EndMS: min(r.EndMS, math.MaxInt64-cutMost) + cutMost}
}

// cut gives the samples of a run the times at which they are stored, and drops those that a query
// of r does not return; exact is as in [store.ReadOptions.Exact]. Of samples that share a cell, it
// keeps the one that the keyspace will have: the last that was acknowledged, and of samples with the
// same stamp the one with the latest time.
func (v *view) cut(run, spare *model.Columns, r model.TimeRange, exact bool) {
	drop := make([]bool, run.Len())
	last, lastRow := -1, int64(0)
	for i, ms := range run.Times {
		row, storedMS, shown := v.cuts.Place(ms, r)
		shared := last >= 0 && row == lastRow && storedMS == run.Times[last]
		if !shown || exact && storedMS < r.StartMS || shared && len(run.Stamps) > 0 && run.Stamps[i] < run.Stamps[last] {
			drop[i] = true
			continue
		}
		if shared {
			drop[last] = true
		}
		run.Times[i], last, lastRow = storedMS, i, row
	}
	run.Stamps = run.Stamps[:0]
	run.Drop(spare, func(i int) bool { return drop[i] })
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
