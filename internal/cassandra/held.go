package cassandra

import (
	"sort"

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
			newer = clip(kind, &newer, o.Range)
			held = overlaid(kind, &held, &newer)
		}
	}
	held = withoutExpired(kind, &held, v.store.now().UnixMilli())
	if o.Descending {
		held = reversed(kind, &held)
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

// part returns samples from to end of cols. It shares their memory.
func part(kind model.Kind, cols *model.Columns, from, end int) model.Columns {
	p := model.Columns{Times: cols.Times[from:end]}
	switch {
	case kind.Fixed():
		p.Values = cols.Values[from:end]
	case kind.Variable():
		p.Offsets, p.Data = cols.Offsets[from:end+1], cols.Data
	}
	if len(cols.TTLs) > 0 {
		p.TTLs = cols.TTLs[from:end]
	}
	return p
}

// clip returns the part of ascending samples that lies in r.
func clip(kind model.Kind, cols *model.Columns, r model.TimeRange) model.Columns {
	lo := sort.Search(len(cols.Times), func(i int) bool { return cols.Times[i] >= r.StartMS })
	hi := sort.Search(len(cols.Times), func(i int) bool { return cols.Times[i] > r.EndMS })
	if lo >= hi {
		return model.Columns{}
	}
	return part(kind, cols, lo, hi)
}

func withoutExpired(kind model.Kind, cols *model.Columns, nowMS int64) model.Columns {
	if len(cols.TTLs) == 0 {
		return *cols
	}
	var kept model.Columns
	for i := range cols.Times {
		if model.ExpiryMS(cols.Times[i], cols.TTL(i)) > nowMS {
			kept.AppendFrom(kind, cols, i)
		}
	}
	return kept
}

func reversed(kind model.Kind, cols *model.Columns) model.Columns {
	var out model.Columns
	for i := cols.Len() - 1; i >= 0; i-- {
		out.AppendFrom(kind, cols, i)
	}
	return out
}
