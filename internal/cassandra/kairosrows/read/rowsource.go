package read

import (
	"context"
	"slices"

	"varve/internal/cassandra/layout"
	"varve/internal/model"
	"varve/internal/store"
)

// Select implements layout.Look.
func (l *Look) Select(ctx context.Context, sel store.Selection) (layout.Found, error) {
	f, err := l.find(ctx, sel)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Open implements layout.Found.
func (f *Found) Open(ctx context.Context, place int, o store.ReadOptions) store.Cursor {
	s := &rowSource{ctx: ctx, look: f.look, series: f.Series(place), options: o, groups: grouped(f.rowsOf(place))}
	if o.Descending {
		slices.Reverse(s.groups)
	}
	return s
}

// RowOf implements layout.Look.
func (l *Look) RowOf(ms int64) int64 { return l.reader.ks.Spec.RowTime(ms) }

// A rowSource yields the samples of a series, row by row, in the wanted order.
//
// Rows with times from 0 on do not overlap. For negative times, KairosDB creates a row for
// nearly each time, and these rows overlap, so they are read as one. A row and the row of the
// same time in the legacy form are also read as one.
type rowSource struct {
	ctx     context.Context
	look    *Look
	series  model.Series
	options store.ReadOptions
	groups  [][]Row
	block   store.Block
	open    *RowCursor
	held    int64 // bytes of block that were taken from the memory of the request
}

// grouped splits ascending rows into groups that must be read as one.
func grouped(rows []Row) [][]Row {
	var groups [][]Row
	for i, r := range rows {
		if n := len(groups); n > 0 && (r.TimeMS < 0 || r.TimeMS == rows[i-1].TimeMS) {
			groups[n-1] = append(groups[n-1], r)
			continue
		}
		groups = append(groups, rows[i:i+1:i+1])
	}
	return groups
}

// Next implements store.Cursor.
func (s *rowSource) Next() (*store.Block, error) {
	for {
		if s.open == nil {
			s.release()
			if len(s.groups) == 0 {
				return nil, nil
			}
			group := s.groups[0]
			s.groups = s.groups[1:]
			if len(group) > 1 {
				if err := s.readAll(group); err != nil {
					return nil, err
				}
				if s.block.Len() > 0 {
					return &s.block, nil
				}
				continue
			}
			s.open = s.look.ReadRow(s.ctx, s.series, group[0], s.options)
		}
		b, err := s.open.Next()
		if err != nil || b != nil {
			return b, err
		}
		s.open.Close()
		s.open = nil
	}
}

// readAll reads overlapping rows into one block. Of samples with the same time, the one of the
// last row wins.
func (s *rowSource) readAll(rows []Row) error {
	kind := s.series.Type.Kind()
	var all model.Columns
	o := s.options
	o.Descending, o.Limit, o.Summarize = false, 0, nil
	for _, r := range rows {
		if err := s.readRow(r, o, &all); err != nil {
			return err
		}
	}
	var sorter model.Sorter
	sorter.Sort(kind, &all)
	if s.options.Descending {
		var spare model.Columns
		all.Reverse(&spare)
	}
	s.block = store.Block{Columns: all}
	return nil
}

func (s *rowSource) readRow(r Row, o store.ReadOptions, dst *model.Columns) error {
	c := s.look.ReadRow(s.ctx, s.series, r, o)
	defer c.Close()
	for {
		b, err := c.Next()
		if err != nil || b == nil {
			return err
		}
		if err := s.hold(&b.Columns); err != nil {
			return err
		}
		dst.Append(&b.Columns, 0, b.Len())
	}
}

// hold takes memory for samples of overlapping rows: a client can send any number of them.
func (s *rowSource) hold(c *model.Columns) error {
	const copies = 2 // sorting and reversing make one
	n := copies * c.Memory()
	if err := s.look.hold(n); err != nil {
		return err
	}
	s.held += n
	return nil
}

func (s *rowSource) release() {
	_ = s.look.hold(-s.held) // giving back does not fail
	s.held = 0
}

// Close implements store.Cursor.
func (s *rowSource) Close() {
	s.release()
	if s.open != nil {
		s.open.Close()
		s.open = nil
	}
}
