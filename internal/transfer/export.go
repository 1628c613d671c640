package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"

	"varve/internal/model"
	"varve/internal/store"
)

// namesPage is the number of metric names that are in memory at once.
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

// page reads one page of names in a view of its own, so that no view stays open while
// metrics are exported.
func page(ctx context.Context, s store.Viewer, q store.NamesQuery) (names []string, more bool, err error) {
	view, err := store.OpenCurrent(ctx, s)
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	return view.Names(ctx, q)
}

// writeBytes is the size at which buffered lines are written.
const writeBytes = 64 << 10

// Export writes all samples of a metric within a range to w, series by series in the
// order of model.Series.Compare, and returns the number of samples. It keeps no list of
// the series, though the store may keep one to sort them. buckets is BucketsAsSamples or
// WithoutBuckets.
//
// Before each series it calls progress, unless that is nil, with the number of series
// written so far and their total. The total is counted at the beginning, and raised if
// there are more.
func Export(ctx context.Context, s store.Viewer, metric string, within model.TimeRange, buckets store.BucketMode, w io.Writer, progress func(series, of int)) (points int64, err error) {
	return export(ctx, s, metric, within, exporter{out: w, mode: buckets}, progress)
}

// BucketType begins the type of the lines of buckets that ExportBuckets writes. The width of
// the buckets in ms follows.
const BucketType = "varve_bucket_"

// ExportBuckets is like Export, but writes downsampled buckets on separate lines instead of
// converting them to samples. A bucket is a base64 point at the beginning of the bucket,
// with the bytes of model.Aggregate. The buckets of a series follow its samples, in order
// of time.
func ExportBuckets(ctx context.Context, s store.Viewer, metric string, within model.TimeRange, w io.Writer) (points int64, err error) {
	return export(ctx, s, metric, within, exporter{out: w, mode: store.WithoutBuckets, separate: true}, nil)
}

func export(ctx context.Context, s store.Viewer, metric string, within model.TimeRange, e exporter, progress func(series, of int)) (points int64, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("export %s: %w", metric, err)
		}
	}()
	view, err := store.OpenCurrent(ctx, s)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	e.view, e.within = view, within
	of := 0
	if progress != nil {
		if of, err = countSeries(ctx, view, metric, within); err != nil {
			return 0, err
		}
	}
	written := 0
	for one, err := range view.Select(ctx, store.Selection{Metric: metric, Range: within}) {
		if err != nil {
			return e.points, err
		}
		if progress != nil {
			progress(written, max(of, written+1))
		}
		if err := e.series(ctx, one); err != nil {
			return e.points, err
		}
		written++
	}
	_, err = e.out.Write(e.buf)
	return e.points, err
}

// countSeries counts the series that are to be exported.
func countSeries(ctx context.Context, view store.View, metric string, within model.TimeRange) (n int, err error) {
	for _, err := range view.Select(ctx, store.Selection{Metric: metric, Range: within, AnyOrder: true}) {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

type exporter struct {
	view     store.View
	within   model.TimeRange
	out      io.Writer
	mode     store.BucketMode // of samples
	separate bool             // buckets have lines of their own
	line     LineWriter
	buf      []byte
	points   int64
}

func (e *exporter) series(ctx context.Context, s store.Series) error {
	if err := e.samples(ctx, s, store.ReadOptions{Range: e.within, Buckets: e.mode}); err != nil || !e.separate {
		return err
	}
	return e.buckets(ctx, s)
}

// buckets writes the buckets of a series.
func (e *exporter) buckets(ctx context.Context, s store.Series) error {
	cursor := e.view.Read(ctx, s, store.ReadOptions{Range: e.within, Buckets: store.BucketsOnly, Needs: model.AllStats, Sketches: true})
	defer cursor.Close()
	var cols model.Columns
	var bytes []byte
	for stepMS := int64(0); ; {
		block, err := cursor.Next()
		if err != nil {
			return err
		}
		if block == nil {
			return e.take()
		}
		if block.Buckets == nil { // a store without buckets returns samples, which have already been written
			continue
		}
		for i := range block.Buckets.Len() {
			b := block.Buckets.At(i)
			if b.StepMS != stepMS {
				if err := e.take(); err != nil {
					return err
				}
				stepMS = b.StepMS
				e.line.Begin(model.Series{Metric: s.Metric, Tags: s.Tags, Type: model.Type(BucketType + strconv.FormatInt(stepMS, 10))})
			}
			cols.Reset()
			bytes = b.Aggregate.Append(bytes[:0])
			cols.AppendBytes(b.StartMS, bytes, 0)
			e.line.Add(&cols, 0)
			if e.line.Full() {
				if err := e.take(); err != nil {
					return err
				}
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// samples writes the samples of a series that a cursor with the options o returns.
func (e *exporter) samples(ctx context.Context, s store.Series, o store.ReadOptions) error {
	e.line.Begin(s.Series)
	cursor := e.view.Read(ctx, s, o)
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

// take moves the unfinished lines to the buffer, and writes a buffer that is full.
func (e *exporter) take() error {
	var points int
	e.buf, _, points = e.line.Take(e.buf)
	e.points += int64(points)
	if len(e.buf) < writeBytes {
		return nil
	}
	_, err := e.out.Write(e.buf)
	e.buf = e.buf[:0]
	return err
}
