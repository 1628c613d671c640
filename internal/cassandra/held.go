package cassandra

import (
	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/store"
)

// heldOf collects what the spool has of a series in the range: of each time the
// newest, and what has expired not at all.
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
	var spare model.Columns
	held.DropExpired(&spare, v.store.now().UnixMilli())
	if o.Descending {
		held.Reverse(&spare)
	}
	return held, nil
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

// overlaid merges two runs of samples, ascending. At equal times newer wins.
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
