package write

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/spool"
	"varve/internal/work"
)

// A writePass is one attempt to write a source.
type writePass struct {
	*progress
	w       *Writer
	src     Source
	stampMS int64 // upper bound of the samples' write timestamps, and the timestamp of samples without one
	nowMS   int64

	together int  // how many rows of a metric and row time that failed before get their index rows in one call
	oneByOne bool // few series failed before: they are written one after the other

	reconnectFor time.Duration // remaining time to wait for reconnection after such series

	key   []byte // scratch of eachRow
	wrote atomic.Bool

	left seriesSet // for the next attempt

	mu     sync.Mutex
	failed map[string]int // consecutive failed batches, by failure domain: a replica set, or see indexDomain
	err    error          // the first error because of which a series was left
}

// A pendingSeries is a series to write, with the replica set of its first row.
type pendingSeries struct {
	id       model.SeriesNumber
	replicas string // see cql.Session.ReplicaSet
	alone    bool   // must not share a batch with other series
}

// hopelessAfter is how many batches of one failure domain fail in a row before an attempt
// leaves the rest of that domain to the next attempt. The replicas are down, and each further
// batch would cost several seconds to find that out again.
const hopelessAfter = 8

// hopeless reports whether series of a failure domain should be left to the next attempt.
func (p *writePass) hopeless(domain string, after int) bool {
	if !p.w.connected() {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed[domain] >= after
}

// reconnect waits for a connection if there is none. The previous series may be the cause:
// nodes close the connection on a statement that is too large for them.
func (p *writePass) reconnect(ctx context.Context) {
	if p.reconnectFor <= 0 || p.w.connected() {
		return
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, p.reconnectFor)
	defer cancel()
	p.w.index.ks.Session.Wait(ctx) // if there is still no connection, the next statement returns the reason
	p.reconnectFor -= time.Since(began)
}

// tried records the result of a batch of these failure domains.
func (p *writePass) tried(written bool, domains ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, domain := range domains {
		if !written {
			p.failed[domain]++
		} else if p.failed[domain] > 0 {
			p.failed[domain] = 0
		}
	}
}

// leave leaves series to the next attempt, because of err. err is nil if an earlier error is
// the cause.
func (p *writePass) leave(err error, ids ...model.SeriesNumber) {
	p.left.add(ids...)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
}

// samples writes what earlier attempts have left. After an error it continues with series that
// do not depend on the same nodes.
func (p *writePass) samples(ctx context.Context) error {
	var last []pendingSeries
	queue := make(chan []pendingSeries)
	var workers sync.WaitGroup
	for range p.w.cfg.Parallel {
		workers.Go(func() { p.work(ctx, queue) })
	}
	err := p.slices(p.pending, func(ids []model.SeriesNumber) error {
		all, err := p.index(ctx, ids)
		if err != nil {
			return err
		}
		for some := range together(all, workSeries) {
			if p.oneByOne && some[0].alone {
				last = append(last, some...)
				continue
			}
			select {
			case queue <- some:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	close(queue)
	workers.Wait()
	for i := range last {
		p.reconnect(ctx)
		p.write(ctx, last[i:i+1])
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("write samples: %w", context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("write samples: %w", err)
	}
	return nil
}

// settleWritten counts written samples as stored, unless an announced removal concerns
// their index rows. These rows are then written again; if that fails, the samples stay
// pending.
func (p *writePass) settleWritten(ctx context.Context) error {
	if err := p.w.deletes.look(ctx); err != nil {
		return err
	}
	if err := p.w.probe(ctx, p.parts); err != nil && ctx.Err() != nil {
		return err // after any other error, the next pass probes again
	}
	if err := p.indexAgain(ctx); err != nil {
		return err
	}
	p.settled.Or(roaring.AndNot(p.done.clone(), p.left.clone()))
	p.w.known.rely(p.parts, p.w.now())
	return nil
}

// leftBy returns why series are left to the next attempt, or nil if none are.
func (p *writePass) leftBy() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil && p.left.count() > 0 {
		return cql.ErrAway
	}
	return p.err
}

// indexAgain writes again the index rows of written samples that were forgotten since. Series
// that already count as written do not need that.
func (p *writePass) indexAgain(ctx context.Context) error {
	for {
		metrics, all, now := p.w.known.since(p.epoch)
		if len(metrics) == 0 && !all {
			return nil
		}
		concerned := func(id model.SeriesNumber) bool {
			s, ok := p.src.SeriesOf(id)
			return ok && (all || metrics[s.Metric]) && p.done.has(id) && !p.settled.Contains(uint32(id)) && !p.left.has(id)
		}
		before := p.left.count()
		err := p.slices(concerned, func(ids []model.SeriesNumber) error {
			_, err := p.index(ctx, ids)
			return err
		})
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("write index rows that a delete may have removed: %w", err)
		}
		if p.left.count() > before {
			return nil // the next attempt writes their index rows, so the epoch must not advance
		}
		p.epoch = now
	}
}

// slices calls f with the wanted series of the source, up to sliceSeries at a time.
func (p *writePass) slices(wanted func(id model.SeriesNumber) bool, f func(ids []model.SeriesNumber) error) error {
	var ids []model.SeriesNumber
	for id := range p.src.Series() {
		if !wanted(id) {
			continue
		}
		if ids = append(ids, id); len(ids) == sliceSeries {
			if err := f(ids); err != nil {
				return err
			}
			ids = nil // workers may still use it
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return f(ids)
}

// load fills cols with the samples of a series.
func (p *writePass) load(id model.SeriesNumber, run *head.Run, cols *model.Columns) (model.Series, bool, error) {
	series, ok := p.src.SeriesOf(id)
	if !ok {
		return series, false, nil
	}
	there, err := p.src.Snapshot(id, model.AllTime, run)
	if err != nil || !there {
		return series, false, err
	}
	cols.Reset()
	if err := run.DecodeAll(cols); err != nil {
		return series, false, fmt.Errorf("read the spooled samples of %s: %w", series, err)
	}
	return series, true, nil
}

// A rowGroup is a set of rows of one metric and row time whose index rows may be missing, with
// the series of each.
type rowGroup struct {
	rows  []Row
	ids   []model.SeriesNumber
	apart bool // they failed before, so each batch has one partition only
}

func (g rowGroup) part(from, to int) rowGroup {
	return rowGroup{g.rows[from:to], g.ids[from:to], g.apart}
}

// only returns the group of the rows at the given positions.
func (g rowGroup) only(positions []int) rowGroup {
	some := rowGroup{make([]Row, len(positions)), make([]model.SeriesNumber, len(positions)), g.apart}
	for i, at := range positions {
		some.rows[i], some.ids[i] = g.rows[at], g.ids[at]
	}
	return some
}

// rowGroups are groups of rows. Those in lone are written one after the other, since each of them
// may be what made a node hang up.
type rowGroups struct {
	together     int // most rows of series that are written alone in one group
	oneByOne     bool
	groups, lone []*rowGroup
	open         map[groupKey]*rowGroup
}

// A groupKey is what the rows of a group have in common.
type groupKey struct {
	rowkey.Partition
	alone bool
}

// add adds a row of a series.
func (r *rowGroups) add(row Row, id model.SeriesNumber, alone bool) {
	k := groupKey{row.part(), alone}
	g := r.open[k]
	if g == nil || alone && len(g.rows) >= r.together {
		g = &rowGroup{apart: alone}
		r.open[k] = g
		if alone && r.oneByOne {
			r.lone = append(r.lone, g)
		} else {
			r.groups = append(r.groups, g)
		}
	}
	g.rows, g.ids = append(g.rows, row), append(g.ids, id)
}

// index writes the index rows that the series need and that are not known to exist. It returns
// the series whose index rows exist, sorted by replica set. The other series are left or
// refused.
func (p *writePass) index(ctx context.Context, ids []model.SeriesNumber) ([]pendingSeries, error) {
	epoch := p.w.known.now()
	all, missing, err := p.missingRows(ids)
	if err != nil {
		return nil, err
	}
	if p.attempts > 1 {
		shuffle(missing.groups)
		shuffle(missing.lone)
	}
	stampMS := p.w.deletes.stamp()
	write := func(groups []*rowGroup, atOnce int) error {
		return work.Parallel(ctx, atOnce, len(groups), "write index rows", func(ctx context.Context, i int) error {
			p.indexGroup(ctx, epoch, stampMS, *groups[i])
			return context.Cause(ctx)
		})
	}
	if err := write(missing.groups, indexParallel); err != nil {
		return nil, err
	}
	if err := write(missing.lone, 1); err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s pendingSeries) bool { return p.left.has(s.id) || p.refused.has(s.id) })
	if p.attempts > 1 {
		shuffle(all)
	}
	slices.SortStableFunc(all, func(a, b pendingSeries) int {
		return cmp.Or(strings.Compare(a.replicas, b.replicas), falseFirst(a.alone, b.alone))
	})
	return all, nil
}

// missingRows returns the series and those of their rows whose index rows are not known to exist.
func (p *writePass) missingRows(ids []model.SeriesNumber) ([]pendingSeries, *rowGroups, error) {
	w := p.w
	var run head.Run
	var cols model.Columns
	missing := &rowGroups{together: p.together, oneByOne: p.oneByOne, open: map[groupKey]*rowGroup{}}
	all := make([]pendingSeries, len(ids))
	for i, id := range ids {
		all[i] = pendingSeries{id: id, alone: p.suspects.has(id)}
		series, ok, err := p.load(id, &run, &cols)
		if err != nil {
			return nil, nil, err
		}
		if !ok || w.cfg.refusedSeries(series) != "" {
			continue
		}
		p.eachRow(series, run.Kind, &cols, func(row Row) {
			if all[i].replicas == "" {
				all[i].replicas = w.replicaSet(cql.Entry{Statement: insertSample, Args: []any{p.key}})
			}
			if row.NeedSec == 0 {
				return // all of its samples have expired, so it needs no index rows
			}
			p.parts[row.part()] = struct{}{}
			if !w.known.holds(row.part(), row.key(), row.NeedSec) {
				missing.add(row, id, all[i].alone)
			}
		})
	}
	return all, missing, nil
}

// falseFirst compares booleans: false comes before true.
func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// shuffle reorders a list, so that failing elements at its beginning do not hold up the rest at
// each attempt.
func shuffle[T any](all []T) {
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
}

// Index rows of one metric are on many replica sets, so they have failure domains of their own:
// one for all index rows, and one for each metric.
const (
	indexDomain   = "index"
	metricDomain  = "index of "
	hopelessIndex = indexParallel
)

// indexGroup writes index rows. Rows that cannot be written are left. If Cassandra refuses
// some, the group is halved until the rows at fault are found.
func (p *writePass) indexGroup(ctx context.Context, epoch uint64, stampMS int64, g rowGroup) {
	if g.apart && p.oneByOne {
		p.reconnect(ctx)
	}
	domain := metricDomain + g.rows[0].Series.Metric
	if p.hopeless(indexDomain, hopelessIndex) || p.hopeless(domain, hopelessAfter) {
		p.leave(nil, g.ids...)
		return
	}
	unwritten, err := p.w.index.writeRows(ctx, epoch, stampMS, g.rows, g.apart)
	if ctx.Err() != nil {
		return
	}
	if len(unwritten) < len(g.rows) {
		p.tried(true, indexDomain, domain)
	}
	if err == nil {
		return
	}
	g = g.only(unwritten)
	n := len(g.rows)
	switch {
	case n > 1 && p.isolates(err):
		p.indexGroup(ctx, epoch, stampMS, g.part(0, n/2))
		p.indexGroup(ctx, epoch, stampMS, g.part(n/2, n))
	case n == 1 && p.drops(err):
		p.refuse(g.ids[0], err)
	default:
		p.tried(false, indexDomain, domain)
		p.suspects.add(g.ids...)
		p.leave(err, g.ids...)
	}
}

// refuse drops all samples of a series whose index rows cannot be written.
func (p *writePass) refuse(id model.SeriesNumber, err error) {
	if !p.refused.add(id) {
		return // already counted for another row
	}
	var run head.Run
	var cols model.Columns
	series, ok, loadErr := p.load(id, &run, &cols)
	if loadErr != nil || !ok || len(cols.Times) == 0 {
		return
	}
	p.w.refuse(string(refusalOf(err).Reason), series, cols.Times[0], len(cols.Times), err)
}

// eachRow calls f with each row that gets samples of a series. Row.NeedSec is 0 if all of these
// samples have expired.
func (p *writePass) eachRow(series model.Series, k model.Kind, cols *model.Columns, f func(Row)) {
	var row Row
	open := false
	for i, ms := range cols.Times {
		at := p.w.spec.RowTime(ms)
		if open && at != row.RowTimeMS {
			f(row)
			open = false
		}
		expiry, reason := p.sample(k, cols, i)
		if reason != "" && reason != reasonExpired {
			continue
		}
		if !open {
			var err error
			if p.key, err = keyOf(series, at, p.key[:0]); err != nil {
				return // the key is too long, whatever the row time
			}
			row, open = Row{Series: series, RowTimeMS: at}, true
		}
		if reason == reasonExpired {
			continue
		}
		if expiry != rowkey.Forever {
			expiry = ceilSeconds(expiry)
		}
		row.NeedSec = max(row.NeedSec, expiry)
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

// ttl returns how many seconds remain until a sample expires, rounded up, and 0 if it never
// expires.
func (p *writePass) ttl(expiryMS int64) int {
	if expiryMS == rowkey.Forever {
		return 0
	}
	return int(ceilSeconds(expiryMS - p.nowMS))
}

// stamp returns the write timestamp of a sample: the time at which it was acknowledged, if that
// is known, and at most the pass's stampMS.
func (p *writePass) stamp(cols *model.Columns, i int) int64 {
	if len(cols.Stamps) == 0 {
		return p.stampMS
	}
	return min(cols.Stamps[i], p.stampMS)
}

// ceilSeconds converts milliseconds to seconds, rounding up.
func ceilSeconds(ms int64) int64 {
	sec := ms / 1000
	if ms%1000 > 0 {
		sec++
	}
	return sec
}

// work writes the series from queue until it is closed.
func (p *writePass) work(ctx context.Context, queue <-chan []pendingSeries) {
	for some := range queue {
		p.write(ctx, some)
	}
}

// write writes series with the same replicas.
func (p *writePass) write(ctx context.Context, some []pendingSeries) {
	b := p.w.batchers.Get().(*batcher)
	defer p.w.batchers.Put(b)
	err := work.Do("write series", func() error { return p.several(ctx, b, some) })
	if err != nil {
		b.forget()
		p.leave(err, idsOf(some)...)
	}
}

func idsOf(some []pendingSeries) []model.SeriesNumber {
	ids := make([]model.SeriesNumber, len(some))
	for i, s := range some {
		ids[i] = s.id
	}
	return ids
}

// several does the work of write.
func (p *writePass) several(ctx context.Context, b *batcher, some []pendingSeries) error {
	if p.hopeless(some[0].replicas, hopelessAfter) {
		p.leave(nil, idsOf(some)...)
		return nil
	}
	b.replicas = some[0].replicas
	run := head.Run{Stamps: true}
	var cols model.Columns
	for _, s := range some {
		if err := ctx.Err(); err != nil {
			return err
		}
		series, ok, err := p.load(s.id, &run, &cols)
		if err != nil {
			return err
		}
		if ok {
			p.series(ctx, b, s.id, series, run.Kind, &cols)
		}
	}
	p.flush(ctx, b)
	if err := ctx.Err(); err != nil {
		return err
	}
	p.done.add(slices.DeleteFunc(idsOf(some), p.left.has)...)
	return nil
}

// series adds the samples of one series to b, and sends full batches. For expired samples it
// adds deletions, since they may have replaced older samples.
func (p *writePass) series(ctx context.Context, b *batcher, id model.SeriesNumber, s model.Series, k model.Kind, cols *model.Columns) {
	w := p.w
	if reason := w.cfg.refusedSeries(s); reason != "" {
		w.refuse(reason, s, cols.Times[0], len(cols.Times), nil)
		return
	}
	var at int64
	var key []byte
	open := false // b's last part is the row at
	for i, ms := range cols.Times {
		expiry, reason := p.sample(k, cols, i)
		if reason != "" {
			w.refuse(reason, s, ms, 1, nil)
		}
		if reason != "" && reason != reasonExpired {
			continue
		}
		if row := w.spec.RowTime(ms); !open || row != at {
			var err error
			if key, err = keyOf(s, row, nil); err != nil {
				w.refuse(reasonKey, s, ms, len(cols.Times)-i, err)
				return
			}
			if !b.hasRoom() {
				p.flush(ctx, b)
			}
			at, open = row, true
			b.begin(id, s, key)
		}
		column := w.spec.Column(at, ms)
		if b.full() && column != b.last {
			p.flush(ctx, b)
			b.begin(id, s, key)
		}
		if reason == reasonExpired {
			b.remove(ms, column, p.stamp(cols, i))
			continue
		}
		var err error
		if b.value, err = appendValue(b.value[:0], k, cols, i); err != nil {
			w.refuse(reasonValue, s, ms, 1, err)
			continue
		}
		b.add(ms, column, p.ttl(expiry), p.stamp(cols, i))
	}
}

// flush sends the entries of b. Series with unwritten entries are left.
func (p *writePass) flush(ctx context.Context, b *batcher) {
	n := len(b.entries)
	if n == 0 {
		b.clear()
		return
	}
	written := p.send(ctx, b, 0, n)
	for _, part := range b.parts {
		p.w.wrote(part.key) // even if entries are left, since others may be written and count as written
	}
	if !written {
		b.forget() // an abandoned request may still read the bytes
		return
	}
	p.w.metrics.batches.Inc()
	b.clear()
}

// send sends the entries of b in [from, to), and reports whether none of them is left. A batch
// that Cassandra refuses is halved until the sample at fault is found; only that sample is
// dropped.
func (p *writePass) send(ctx context.Context, b *batcher, from, to int) bool {
	err := p.w.batch(ctx, p.stampMS, b.entries[from:to])
	switch {
	case err == nil:
		p.tried(true, b.replicas)
		p.wrote.Store(true)
		n := b.samples(from, to)
		p.w.metrics.written.Add(float64(n))
		if g, ok := p.src.(*spool.Generation); ok {
			g.Wrote(int64(n))
		}
		p.w.lastWrite.Store(p.w.now().UnixMilli())
		return true
	case ctx.Err() != nil:
		return false
	case to-from > 1 && p.isolates(err):
		half := from + (to-from)/2
		first := p.send(ctx, b, from, half)
		return p.send(ctx, b, half, to) && first
	case to-from == 1 && p.drops(err):
		refused := refusalOf(err)
		if refused.Reason == cql.TTLTooLong {
			p.w.index.learn2038()
		}
		p.w.refuse(string(refused.Reason), b.partOf(from).series, b.times[from], 1, err)
		return true
	}
	p.tried(false, b.replicas)
	ids := b.ids(from, to)
	if len(ids) > 1 {
		p.suspects.add(ids...)
	}
	p.leave(err, ids...)
	return false
}
