package kairosrows

import (
	"context"
	"math"
	"slices"
	"strings"

	"varve/internal/cassandra/cql"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/store"
)

var listRowTimes = &cql.Statement{Name: "list_row_times",
	Text: "SELECT row_time FROM row_key_time_index WHERE metric = ? AND table_name = ? AND row_time >= ? AND row_time <= ?"}

// A rowTimeDelete is what is deleted of one row time.
type rowTimeDelete struct {
	rowTimeMS int64
	rows      []rowDelete
}

// A rowDelete is what is deleted of one row.
type rowDelete struct {
	series   model.Series // its type is rowtime.TypeLegacy for a row of that form
	whole    bool
	from, to uint32 // columns, both inclusive, unless whole
}

// plan finds what is to be deleted, by ascending row time.
func (d *Deleter) plan(ctx context.Context, find lookup, del store.Deletion) ([]rowTimeDelete, error) {
	found, err := find(ctx, store.Selection{Metric: del.Metric, Matchers: del.Matchers, Range: del.Range, AnyOrder: true})
	if err != nil {
		return nil, err
	}
	byTime := map[int64][]rowDelete{}
	type legacyRow struct {
		tags model.Tags
		ms   int64
	}
	seen := map[legacyRow]bool{}
	for _, s := range found {
		if !del.Means(s.Series) {
			continue
		}
		for _, row := range s.Rows {
			rd := rowDelete{series: s.Series}
			if row.Form != Typed {
				// The longs and the doubles of it are two series and one row.
				if l := (legacyRow{s.Series.Tags, row.TimeMS}); seen[l] {
					continue
				} else {
					seen[l] = true
				}
				rd.series.Type = rowtime.TypeLegacy
			}
			var none bool
			if rd.from, rd.to, rd.whole, none = deletedColumns(d.ks.Spec, row.TimeMS, del.Range); !none {
				byTime[row.TimeMS] = append(byTime[row.TimeMS], rd)
			}
		}
	}
	if wholeMetric(del) {
		// Row times that are listed and have no row keys: left by expiry.
		low, high := d.ks.Spec.RowRange(del.Range)
		times, err := d.rowTimes(ctx, del.Metric, low, high)
		if err != nil {
			return nil, err
		}
		for _, ms := range times {
			if _, _, _, none := deletedColumns(d.ks.Spec, ms, del.Range); !none {
				byTime[ms] = byTime[ms][:len(byTime[ms]):len(byTime[ms])]
			}
		}
	}
	steps := make([]rowTimeDelete, 0, len(byTime))
	for ms, rows := range byTime {
		steps = append(steps, rowTimeDelete{ms, rows})
	}
	slices.SortFunc(steps, func(a, b rowTimeDelete) int {
		if a.rowTimeMS < b.rowTimeMS {
			return -1
		}
		return 1
	})
	return steps, nil
}

// wholeMetric reports whether a deletion means every series of its metric.
func wholeMetric(del store.Deletion) bool { return len(del.Matchers) == 0 && del.Only == nil }

func (d *Deleter) rowTimes(ctx context.Context, metric string, low, high int64) ([]int64, error) {
	var times []int64
	rows := d.ks.Session.Query(ctx, listRowTimes, metric, dataPointsTable, low, high)
	defer rows.Close()
	var ms cql.Millis
	for rows.Scan(&ms) {
		times = append(times, ms.MS)
	}
	return times, rows.Close()
}

// deletedColumns returns the columns of a row whose times, as they are read, lie
// in r: both ends inclusive. whole says that these are all that the row may
// have, none that there are none.
func deletedColumns(spec rowtime.Spec, rowTimeMS int64, r model.TimeRange) (from, to uint32, whole, none bool) {
	unit := int64(1)
	if spec.Unit == rowtime.Seconds {
		unit = 1000
	}
	lastMS := int64(math.MaxInt64) // of the last column
	if span := (spec.Width - 1) / unit * unit; rowTimeMS <= math.MaxInt64-span {
		lastMS = rowTimeMS + span
	}
	if r.StartMS > lastMS || r.EndMS < rowTimeMS {
		return 0, 0, false, true
	}
	first := int64(0) // in units from the row time
	if r.StartMS > rowTimeMS {
		offset := r.StartMS - rowTimeMS
		first = offset / unit
		if offset%unit != 0 {
			first++
		}
	}
	last := (min(r.EndMS, lastMS) - rowTimeMS) / unit
	if first > last {
		return 0, 0, false, true
	}
	whole = first == 0 && r.EndMS >= lastMS
	if spec.Unit == rowtime.Legacy {
		return uint32(first) << 1, uint32(last)<<1 | 1, whole, false // doubles of old rows have bit 0
	}
	return uint32(first), uint32(last), whole, false
}

func columnBytes(column uint32) []byte {
	return []byte{byte(column >> 24), byte(column >> 16), byte(column >> 8), byte(column)}
}

// describe is a selector for people.
func describe(del store.Deletion) string {
	var b strings.Builder
	b.WriteString(del.Metric)
	for i, m := range del.Matchers {
		b.WriteString([]string{"{", ","}[min(i, 1)])
		values := slices.Clone(m.Values)
		for _, p := range m.Patterns {
			values = append(values, "regex:"+p.String())
		}
		b.WriteString(m.Tag + "=" + strings.Join(values, "|"))
	}
	if len(del.Matchers) > 0 {
		b.WriteByte('}')
	}
	if del.Only != nil {
		b.WriteString(" of type " + string(del.Only.Type) + " without other tags")
	}
	return b.String()
}
