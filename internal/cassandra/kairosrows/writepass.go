package kairosrows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"varve/internal/cassandra/cql"
	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/work"
)

// A writePass is one call of write.
type writePass struct {
	w       *Writer
	src     source
	stampMS int64
	nowMS   int64
	fail    context.CancelCauseFunc

	key []byte // of eachRow
}

// A placed series is one to write, and which nodes hold its first row.
type placed struct {
	id    uint32
	place string
}

// slices calls f with the series of the source, some thousand at a time.
func (p *writePass) slices(f func(ids []uint32) error) error {
	var ids []uint32
	for id := range p.src.Series() {
		if ids = append(ids, id); len(ids) == sliceSeries {
			if err := f(ids); err != nil {
				return err
			}
			ids = nil // the workers may have it still
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return f(ids)
}

// load fills cols with the samples of a series.
func (p *writePass) load(id uint32, run *head.Run, cols *model.Columns) (model.Series, bool, error) {
	series, ok := p.src.SeriesOf(id)
	if !ok {
		return series, false, nil
	}
	there, err := p.src.Snapshot(id, model.AllTime, run)
	if err != nil || !there {
		return series, false, err
	}
	cols.Reset()
	for _, f := range run.Fragments {
		if err := run.Decode(f, cols); err != nil {
			return series, false, fmt.Errorf("read the spooled samples of %s: %w", series, err)
		}
	}
	for i := range run.Open.Times {
		cols.AppendFrom(run.Kind, &run.Open, i)
	}
	return series, true, nil
}

// index writes the index rows that the series need and that are not known to be
// there. It returns the series, those of one place together.
func (p *writePass) index(ctx context.Context, ids []uint32) ([]placed, error) {
	w := p.w
	epoch := w.index.rows.now()
	var run head.Run
	var cols model.Columns
	var missing []pendingRow
	hash := idHash{seeds: w.index.seeds}
	all := make([]placed, len(ids))
	for i, id := range ids {
		all[i].id = id
		series, ok, err := p.load(id, &run, &cols)
		if err != nil {
			return nil, err
		}
		if !ok || w.refusedSeries(series) != "" {
			continue
		}
		p.eachRow(series, run.Kind, &cols, func(row pendingRow) {
			if all[i].place == "" {
				all[i].place = w.place(cql.Entry{Statement: insertSample, Args: []any{p.key}})
			}
			if row.id = hash.row(series, row.rowTimeMS); !w.index.fresh(&row) {
				missing = append(missing, row)
			}
		})
	}
	slices.SortStableFunc(all, func(a, b placed) int { return strings.Compare(a.place, b.place) })
	if len(missing) == 0 {
		return all, nil
	}
	return all, w.index.write(ctx, epoch, w.deletes.above(p.stampMS), missing)
}

// eachRow calls f with each row that gets samples of a series, and until when
// these live.
func (p *writePass) eachRow(series model.Series, k model.Kind, cols *model.Columns, f func(pendingRow)) {
	var row pendingRow
	open := false
	for i, ms := range cols.Times {
		at := p.w.spec.RowTime(ms)
		if open && at != row.rowTimeMS {
			f(row)
			open = false
		}
		expiry, reason := p.sample(k, cols, i)
		if reason != "" {
			continue
		}
		if !open {
			var err error
			if p.key, err = keyOf(series, at, p.key[:0]); err != nil {
				return // it is too long, at any time
			}
			row, open = pendingRow{series: series, rowTimeMS: at}, true
		}
		if expiry != forever {
			expiry = ceilSeconds(expiry)
		}
		row.needSec = max(row.needSec, expiry)
	}
	if open {
		f(row)
	}
}

// keyOf appends the key of a row to dst. An error means that a row of the series, or
// its index, cannot be stored.
func keyOf(s model.Series, rowTimeMS int64, dst []byte) ([]byte, error) {
	if n := rowtime.SeriesBytes(s.Metric, s.Type, s.Tags.All()); n > rowtime.MaxKeyBytes {
		return dst, fmt.Errorf("metric name and tags take %d bytes, a key at most %d", n, rowtime.MaxKeyBytes)
	}
	return rowtime.Key{Metric: s.Metric, RowTimeMS: rowTimeMS, Type: s.Type, Tags: s.Tags}.Append(dst)
}

// ttl is how many seconds remain until a sample expires, rounded up; 0 means
// that it never does.
func (p *writePass) ttl(expiryMS int64) int {
	if expiryMS == forever {
		return 0
	}
	return int(ceilSeconds(expiryMS - p.nowMS))
}

// ceilSeconds is the first second that is not before ms.
func ceilSeconds(ms int64) int64 {
	sec := ms / 1000
	if ms%1000 > 0 {
		sec++
	}
	return sec
}

// work writes series until there are no more, or one failed.
func (p *writePass) work(ctx context.Context, queue <-chan []placed) {
	b := newBatcher(p.w.cfg.BatchRows)
	for some := range queue {
		if err := work.Do("write series", func() error { return p.several(ctx, b, some) }); err != nil {
			b.clear()
			p.fail(err)
		}
	}
}

// several writes series of one place.
func (p *writePass) several(ctx context.Context, b *batcher, some []placed) error {
	var run head.Run
	var cols model.Columns
	for _, s := range some {
		if err := ctx.Err(); err != nil {
			return err
		}
		series, ok, err := p.load(s.id, &run, &cols)
		if err == nil && ok {
			err = p.series(ctx, b, series, run.Kind, &cols)
		}
		if err != nil {
			return err
		}
	}
	return p.flush(ctx, b)
}

// series adds the samples of one series to b, and sends what is full.
func (p *writePass) series(ctx context.Context, b *batcher, s model.Series, k model.Kind, cols *model.Columns) error {
	w := p.w
	if reason := w.refusedSeries(s); reason != "" {
		w.refuse(reason, s, cols.Times[0], len(cols.Times), nil)
		return nil
	}
	var at int64
	var key []byte
	open := false // b is for the row at
	for i, ms := range cols.Times {
		expiry, reason := p.sample(k, cols, i)
		if reason != "" {
			w.refuse(reason, s, ms, 1, nil)
			continue
		}
		if row := w.spec.RowTime(ms); !open || row != at {
			var err error
			if key, err = keyOf(s, row, nil); err != nil {
				w.refuse(reasonKey, s, ms, len(cols.Times)-i, err)
				return nil
			}
			if !b.takes() {
				if err := p.flush(ctx, b); err != nil {
					return err
				}
			}
			at, open = row, true
			b.begin(s, key)
		}
		column := w.spec.Column(at, ms)
		if b.full() && column != b.last {
			if err := p.flush(ctx, b); err != nil {
				return err
			}
			b.begin(s, key)
		}
		var err error
		if b.value, err = appendValue(b.value[:0], k, cols, i); err != nil {
			w.refuse(reasonValue, s, ms, 1, err)
			continue
		}
		b.add(ms, column, p.ttl(expiry))
	}
	return nil
}

// flush sends what is in b.
func (p *writePass) flush(ctx context.Context, b *batcher) error {
	n := len(b.entries)
	if n == 0 {
		b.clear()
		return nil
	}
	dropped, err := p.send(ctx, b, 0, n)
	if err != nil {
		b.forget() // an attempt that was given up may still read the bytes
		return err
	}
	p.w.metrics.written.Add(float64(n - dropped))
	p.w.metrics.batches.Inc()
	for _, part := range b.parts {
		p.w.wrote(part.key)
	}
	b.clear()
	return nil
}

// send sends the entries of b in [from, to). A batch that is refused for good is
// halved until the sample that is at fault is found; only that one is dropped.
func (p *writePass) send(ctx context.Context, b *batcher, from, to int) (dropped int, err error) {
	err = p.w.batch(ctx, p.stampMS, b.entries[from:to])
	var refused *cql.RefusedError
	if err == nil || !errors.As(err, &refused) || !faultOfSample(refused.Reason) {
		return 0, err
	}
	if refused.Reason == cql.TTLTooLong {
		p.w.index.learn2038()
	}
	if to-from == 1 {
		p.w.refuse(string(refused.Reason), b.seriesOf(from), b.times[from], 1, refused)
		return 1, nil
	}
	half := from + (to-from)/2
	for _, part := range [][2]int{{from, half}, {half, to}} {
		n, err := p.send(ctx, b, part[0], part[1])
		if err != nil {
			return dropped, err
		}
		dropped += n
	}
	return dropped, nil
}

// faultOfSample says whether another sample may be taken where this one was
// refused. What is wrong with the schema, the user's rights or a guardrail is
// wrong for all: such samples stay in the spool until it is put right. So do
// those that are refused for a reason that is not known.
func faultOfSample(r cql.Reason) bool {
	switch r {
	case cql.TTLTooLong, cql.KeyTooLong, cql.RequestTooLarge, cql.BatchTooLarge, cql.BadArgument:
		return true
	}
	return false
}
