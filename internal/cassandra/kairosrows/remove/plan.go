package remove

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/store"
)

var listRowTimes = &cql.Statement{Name: "list_row_times", Level: cql.Everywhere,
	Text: "SELECT row_time FROM row_key_time_index WHERE metric = ? AND table_name = ? AND row_time >= ? AND row_time <= ?"}

// A rowTimeDelete is what is deleted from one row time.
type rowTimeDelete struct {
	rowTimeMS int64
	rows      []rowDelete
	read      bool // rows has only those of row_key_index; the row keys are read when they are deleted
}

// A rowDelete is what is deleted from one row.
type rowDelete struct {
	key      rowkey.Key // its type is rowtime.TypeLegacy for a legacy row
	whole    bool
	from, to uint32 // columns, both inclusive, unless whole
}

// A deletePlan lists what a deletion deletes, by ascending row time. It has all rows only if
// they are fewer than job_rows. Otherwise row keys are read again, portion by portion, when
// they are deleted.
type deletePlan struct {
	steps []rowTimeDelete
	rows  int

	// By row time; used while the plan is made.
	legacy map[int64][]rowDelete // of row_key_index; nothing for a row time that is left over
	found  map[int64][]rowDelete // of the other tables; nothing for a row time once there are too many
	many   bool
}

// groupedByMetric groups deletions whose row keys are read together: those of the same metric,
// unless all of them have values of tags, for which little is read.
func groupedByMetric(deletions []store.Deletion) [][]store.Deletion {
	var groups [][]store.Deletion
	of := map[string]int{}
	for _, del := range deletions {
		at, known := of[del.Metric]
		if !known || len(rowkey.Literals(del.Matchers)) > 0 {
			at = len(groups)
			groups = append(groups, nil)
		}
		if len(rowkey.Literals(del.Matchers)) == 0 {
			of[del.Metric] = at
		}
		groups[at] = append(groups[at], del)
	}
	return groups
}

// plan finds out what each of the deletions of one metric deletes. It reads at a quorum,
// whatever consistency is configured for queries, and uses no caches, because a row that it
// missed would not be deleted.
func (d *Deleter) plan(ctx context.Context, deletions []store.Deletion) ([]*deletePlan, error) {
	plans := make([]*deletePlan, len(deletions))
	for i, del := range deletions {
		low, high := d.ks.Spec.RowRange(del.Range)
		p := &deletePlan{found: map[int64][]rowDelete{}}
		plans[i] = p
		var err error
		if p.legacy, err = d.legacyRows(ctx, del, low, high); err != nil {
			return nil, err
		}
		for _, rows := range p.legacy {
			p.rows += len(rows)
		}
	}
	low, high := d.ks.Spec.RowRange(spanOf(deletions))
	listed, err := d.rowTimes(ctx, deletions[0].Metric, low, high)
	if err != nil {
		return nil, err
	}
	for _, ms := range listed {
		err := d.eachMatch(ctx, ms, deletions, d.portion, func(i int, rows []rowDelete) error {
			plans[i].add(ms, rows, d.cfg.JobRows/len(deletions))
			return nil
		})
		if err != nil {
			return nil, err
		}
		for i, del := range deletions {
			if _, found := plans[i].found[ms]; found {
				continue
			}
			if left, err := d.isLeftOver(ctx, del, ms); err != nil {
				return nil, err
			} else if left {
				rows := plans[i].legacy[ms]
				plans[i].legacy[ms] = rows // it gets a step even if there are none
			}
		}
	}
	for _, p := range plans {
		p.settle()
	}
	return plans, nil
}

// isLeftOver reports whether a row time gets a step although the deletion selects no row of it,
// because no rows are left in it: they have expired, or a delete was interrupted before it removed
// the row time. For a whole metric, that step itself looks for rows.
func (d *Deleter) isLeftOver(ctx context.Context, del store.Deletion, rowTimeMS int64) (bool, error) {
	if _, some := deletedColumns(d.ks.Spec, rowTimeMS, del.Range); !some || wholeMetric(del) {
		return some, nil
	}
	rows, err := d.hasRowKeys(ctx, rowkey.Partition{Metric: del.Metric, TimeMS: rowTimeMS})
	return !rows, err
}

// spanOf returns the smallest range that contains those of all deletions.
func spanOf(deletions []store.Deletion) model.TimeRange {
	r := deletions[0].Range
	for _, del := range deletions[1:] {
		r.StartMS, r.EndMS = min(r.StartMS, del.Range.StartMS), max(r.EndMS, del.Range.EndMS)
	}
	return r
}

// add adds rows of a row time. Once there are most rows, they are only counted.
func (p *deletePlan) add(rowTimeMS int64, rows []rowDelete, most int) {
	if len(rows) == 0 {
		return
	}
	p.rows += len(rows)
	if p.many = p.many || p.rows >= most; p.many {
		rows = nil
	}
	p.found[rowTimeMS] = append(p.found[rowTimeMS], rows...)
}

// settle makes the steps.
func (p *deletePlan) settle() {
	for ms, rows := range p.found {
		if p.many {
			rows = nil
		}
		p.legacy[ms] = append(p.legacy[ms], rows...)
	}
	p.steps = ascending(p.legacy)
	for i := range p.steps {
		_, found := p.found[p.steps[i].rowTimeMS]
		p.steps[i].read = p.many && found
	}
	p.legacy, p.found = nil, nil
}

func ascending(byTime map[int64][]rowDelete) []rowTimeDelete {
	steps := make([]rowTimeDelete, 0, len(byTime))
	for ms, rows := range byTime {
		steps = append(steps, rowTimeDelete{rowTimeMS: ms, rows: rows})
	}
	slices.SortFunc(steps, func(a, b rowTimeDelete) int { return cmp.Compare(a.rowTimeMS, b.rowTimeMS) })
	return steps
}

// legacyRows returns what is deleted from rows in row_key_index.
func (d *Deleter) legacyRows(ctx context.Context, del store.Deletion, low, high int64) (map[int64][]rowDelete, error) {
	byTime := map[int64][]rowDelete{}
	if there, err := d.hasLegacyKeys(ctx, del.Metric); err != nil || !there {
		return byTime, err
	}
	meant := del.Meaning()
	err := rowkey.EachLegacy(ctx, d.ks.Session, rowkey.LegacyKeysAtQuorum.Level, rowkey.LegacyKeysAtQuorum, rowkey.Span{Metric: del.Metric, LowMS: low, HighMS: high}, func(k rowtime.Key, err error) error {
		if err != nil {
			return nil // KairosDB cannot read it either
		}
		// An old row is one row of two series, its longs and its doubles.
		means := slices.ContainsFunc(rowkey.KeysOfLegacy(k), func(key rowkey.Key) bool {
			return meant(rowkey.Partition{Metric: del.Metric}.Series(key))
		})
		rd, some := deletedColumns(d.ks.Spec, k.RowTimeMS, del.Range)
		rd.key = rowkey.Key{Type: k.Type, Tags: k.Tags}
		if means && some {
			byTime[k.RowTimeMS] = append(byTime[k.RowTimeMS], rd)
		}
		return nil
	})
	return byTime, err
}

// wholeMetric reports whether a deletion selects every series of its metric.
func wholeMetric(del store.Deletion) bool { return len(del.Matchers) == 0 && del.Only == nil }

func (d *Deleter) rowTimes(ctx context.Context, metric string, low, high int64) ([]int64, error) {
	var times []int64
	if !d.ks.Tables.RowKeyTimeIndex || !d.ks.Tables.RowKeys {
		return nil, nil // a keyspace of a version before 1.2
	}
	rows := d.ks.Session.Query(ctx, listRowTimes, metric, schema.DataPoints, low, high)
	defer rows.Close()
	var ms cql.Millis
	for rows.Scan(&ms) {
		times = append(times, ms.MS)
	}
	return times, rows.Close()
}

// deletedColumns returns what is deleted from rows of a row time: the columns that a query of r
// reads, or the whole row if these are all columns that it can have. some says that there are such
// columns.
func deletedColumns(spec rowtime.Spec, rowTimeMS int64, r model.TimeRange) (rd rowDelete, some bool) {
	if r.StartMS > r.EndMS {
		return rd, false
	}
	r.StartMS = spec.FirstShown(rowTimeMS, r.StartMS)
	unit := int64(1)
	if spec.Unit == rowtime.Seconds {
		unit = 1000
	}
	lastMS := int64(math.MaxInt64) // of the last column
	if span := (spec.Width - 1) / unit * unit; rowTimeMS <= math.MaxInt64-span {
		lastMS = rowTimeMS + span
	}
	if r.StartMS > lastMS || r.EndMS < rowTimeMS {
		return rd, false
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
		return rd, false
	}
	rd.from, rd.to, rd.whole = uint32(first), uint32(last), first == 0 && r.EndMS >= lastMS
	if spec.Unit == rowtime.Legacy {
		rd.from, rd.to = rd.from<<1, rd.to<<1|1 // in old rows, columns of doubles have bit 0 set
	}
	return rd, true
}

// describe returns a selector for people.
func describe(del store.Deletion) string {
	var b strings.Builder
	b.WriteString(del.Metric)
	for i, m := range del.Matchers {
		b.WriteString([]string{"{", ","}[min(i, 1)])
		values := slices.Clone(m.Values)
		for _, p := range m.Patterns {
			values = append(values, "regex:"+p.String())
		}
		operator := "="
		if m.Not {
			operator = "!="
		}
		b.WriteString(m.Tag + operator + strings.Join(values, "|"))
	}
	if len(del.Matchers) > 0 {
		b.WriteByte('}')
	}
	if del.Only != nil {
		b.WriteString(" of type " + string(del.Only.Type) + " without other tags")
	}
	return b.String()
}
