package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"varve/internal/model"
	"varve/internal/store"
)

// Count is what was moved.
type Count struct {
	Lines  int64
	Points int64
}

// namesPage is how many metric names are held at once.
const namesPage = 10_000

// Metrics yields the names of all metrics, ascending.
func Metrics(ctx context.Context, s store.Viewer) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		q := store.NamesQuery{Kind: store.MetricNames, Limit: namesPage}
		for more := true; more; {
			var names []string
			var err error
			if names, more, err = page(ctx, s, q); err != nil {
				yield("", fmt.Errorf("list metrics: %w", err))
				return
			}
			for _, name := range names {
				if !yield(name, nil) {
					return
				}
				q.After = name
			}
			more = more && len(names) > 0
		}
	}
}

// page holds no view longer than it takes to read one page.
func page(ctx context.Context, s store.Viewer, q store.NamesQuery) (names []string, more bool, err error) {
	view, err := s.View(ctx)
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	return view.Names(ctx, q)
}

// writeBytes is how much is written at once.
const writeBytes = 64 << 10

// Export writes all samples of a metric within a range to w. Its memory is bounded
// except for the list of the metric's series. Before each series it calls progress,
// unless that is nil, with the number of series written so far.
func Export(ctx context.Context, s store.Viewer, metric string, within model.TimeRange, w io.Writer, progress func(series, of int)) (n Count, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("export %s: %w", metric, err)
		}
	}()
	view, err := s.View(ctx)
	if err != nil {
		return n, err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	series, err := view.Select(ctx, store.Selection{Metric: metric, Range: within})
	if err != nil {
		return n, err
	}
	e := exporter{view: view, within: within, out: w}
	for i, one := range series {
		if progress != nil {
			progress(i, len(series))
		}
		if err := e.series(ctx, one); err != nil {
			return e.count, err
		}
	}
	_, err = e.out.Write(e.buf)
	return e.count, err
}

type exporter struct {
	view   store.View
	within model.TimeRange
	out    io.Writer
	line   LineWriter
	buf    []byte
	count  Count
}

func (e *exporter) series(ctx context.Context, s store.Series) error {
	e.line.Begin(s.Series)
	cursor := e.view.Read(ctx, s, store.ReadOptions{Range: e.within})
	defer cursor.Close()
	for {
		block, err := cursor.Next()
		if err != nil {
			return err
		}
		if block == nil {
			if err := e.take(); err != nil {
				return err
			}
			return context.Cause(ctx) // a metric may have a million series without samples in the range
		}
		for i := range block.Times {
			e.line.Add(&block.Columns, i)
			if e.line.Full() {
				if err := e.take(); err != nil {
					return err
				}
			}
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
	}
}

// take moves finished lines on.
func (e *exporter) take() error {
	var lines, points int
	e.buf, lines, points = e.line.Take(e.buf)
	e.count.Lines += int64(lines)
	e.count.Points += int64(points)
	if len(e.buf) < writeBytes {
		return nil
	}
	_, err := e.out.Write(e.buf)
	e.buf = e.buf[:0]
	return err
}
