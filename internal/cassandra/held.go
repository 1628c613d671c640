package cassandra

import (
	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/store"
)

// heldOf collects the spool's samples of a series in the range, the newest of each
// time. It includes expired samples, since they hide older ones in the keyspaces.
func (v *view) heldOf(sel selected, o store.ReadOptions) (model.Columns, error) {
	var held model.Columns
	kind := sel.series.Type.Kind()
	for _, id := range sel.pending {
		runs, err := v.pending.Runs(id, o.Range)
		if err != nil {
			return held, err
		}
		for i := range runs {
			newer, err := decoded(&runs[i])
			if err != nil {
				return held, err
			}
			newer = newer.Slice(newer.Within(o.Range))
			held = overlaid(kind, &held, &newer)
		}
	}
	if o.Descending {
		var spare model.Columns
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

// decoded returns all samples of a run, ascending.
func decoded(run *head.Run) (model.Columns, error) {
	if len(run.Fragments) == 0 {
		return run.Open, nil
	}
	var cols model.Columns
	err := run.DecodeAll(&cols)
	return cols, err
}

// overlaid merges two ascending runs of samples. At equal times, newer wins.
func overlaid(kind model.Kind, older, newer *model.Columns) model.Columns {
	if older.Len() == 0 {
		return *newer
	}
	var out model.Columns
	i, j := 0, 0
	for i < older.Len() || j < newer.Len() {
		switch {
		case j == newer.Len() || i < older.Len() && older.Times[i] < newer.Times[j]:
			out.AppendFrom(kind, older, i)
			i++
		default:
			if i < older.Len() && older.Times[i] == newer.Times[j] {
				i++
			}
			out.AppendFrom(kind, newer, j)
			j++
		}
	}
	return out
}
