package cassandra

import (
	"context"
	"slices"

	"varve/internal/cassandra/kairosrows"
	"varve/internal/model"
	"varve/internal/store"
)

// A rowSource yields the samples that one keyspace has of a series, row after
// row in the wanted order.
//
// Rows of times from 0 on tile the time line. Below, KairosDB gives nearly each
// time a row of its own, and they overlap: these are read as one. So are a row
// and its namesake of a type that older releases wrote.
type rowSource struct {
	ctx     context.Context
	in      *keyspace
	series  model.Series
	options store.ReadOptions
	groups  [][]kairosrows.Row
	block   store.Block
	open    *kairosrows.RowCursor
}

func newRowSource(ctx context.Context, series model.Series, st stored, o store.ReadOptions) *rowSource {
	s := &rowSource{ctx: ctx, in: st.in, series: series, options: o, groups: grouped(st.rows)}
	if o.Descending {
		slices.Reverse(s.groups)
	}
	return s
}

// grouped splits rows, ascending, into those that must be read as one.
func grouped(rows []kairosrows.Row) [][]kairosrows.Row {
	var groups [][]kairosrows.Row
	for i, r := range rows {
		if n := len(groups); n > 0 && (r.TimeMS < 0 || r.TimeMS == rows[i-1].TimeMS) {
			groups[n-1] = append(groups[n-1], r)
			continue
		}
		groups = append(groups, rows[i:i+1:i+1])
	}
	return groups
}

func (s *rowSource) next() (*store.Block, error) {
	for {
		if s.open == nil {
			if len(s.groups) == 0 {
				return nil, nil
			}
			group := s.groups[0]
			s.groups = s.groups[1:]
			if len(group) > 1 {
				if err := s.readAll(group); err != nil {
					return nil, s.in.cluster.explain(err)
				}
				if s.block.Len() > 0 {
					return &s.block, nil
				}
				continue
			}
			s.open = s.in.look.ReadRow(s.ctx, s.series, group[0], s.options)
		}
		b, err := s.open.Next()
		if err != nil || b != nil {
			return b, s.in.cluster.explain(err)
		}
		s.open.Close()
		s.open = nil
	}
}

// readAll reads rows that overlap into one block. Of samples at the same time
// the last row's is taken.
func (s *rowSource) readAll(rows []kairosrows.Row) error {
	kind := s.series.Type.Kind()
	var all model.Columns
	o := s.options
	o.Descending, o.Limit, o.Summarize = false, 0, nil
	for _, r := range rows {
		if err := s.readRow(r, o, kind, &all); err != nil {
			return err
		}
	}
	order := make([]int, all.Len())
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case all.Times[a] < all.Times[b]:
			return -1
		case all.Times[a] > all.Times[b]:
			return 1
		}
		return 0
	})
	var sorted model.Columns
	for i, at := range order {
		if i+1 == len(order) || all.Times[order[i+1]] != all.Times[at] {
			sorted.AppendFrom(kind, &all, at)
		}
	}
	if s.options.Descending {
		sorted = reversed(kind, &sorted)
	}
	s.block = store.Block{Columns: sorted}
	return nil
}

func (s *rowSource) readRow(r kairosrows.Row, o store.ReadOptions, kind model.Kind, dst *model.Columns) error {
	c := s.in.look.ReadRow(s.ctx, s.series, r, o)
	defer c.Close()
	for {
		b, err := c.Next()
		if err != nil || b == nil {
			return err
		}
		for i := range b.Times {
			dst.AppendFrom(kind, &b.Columns, i)
		}
	}
}

func (s *rowSource) close() {
	if s.open != nil {
		s.open.Close()
		s.open = nil
	}
}
