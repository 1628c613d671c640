package agg

import (
	"sort"
	"sync"

	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
)

// A table is the folded result of a part of a group: its buckets with samples, in order
// of time.
type table struct {
	step    *foldStep
	buckets *buckets
	lease   *query.Lease
	tallies []tally
	kept    *[]tally // the entry of tableTallies that has the memory of tallies, and to which it returns; nil if there is none
}

// A folder reads a slice of the series of some groups, one after the other. One
// goroutine uses it.
type folder struct {
	query.Scan
	result *Result
	slice  int     // number of the slice
	most   int     // tables that may still be made
	tables []table // made together; a query by many groups needs one for each

	*table          // table of the current series
	reading         // the current one
	pos     int     // current place of the series in the table
	extra   []tally // buckets of the series that are not in the table
	spare   []tally // memory of the last merge
	known   bucket  // the last result of final
}

// folders are pooled: their memory is reused by later queries.
var folders = sync.Pool{New: func() any { return &folder{} }}

// keptTallies bounds the memory of a pooled folder: 1 MB.
const keptTallies = 8 << 10

// release returns a folder to the pool.
func (f *folder) release() {
	extra, spare := f.extra, f.spare
	if cap(extra)+cap(spare) > keptTallies {
		extra, spare = nil, nil
	}
	*f = folder{extra: extra[:0], spare: spare[:0]}
	folders.Put(f)
}

// tableTallies pools the memory of tables. For a query of one series with a hundred
// buckets they would otherwise be the larger part of all allocated memory.
var tableTallies = sync.Pool{New: func() any { return new([]tally) }}

// borrow gives a table without tallies the memory of an earlier one.
func (t *table) borrow() {
	t.kept = tableTallies.Get().(*[]tally)
	t.tallies = (*t.kept)[:0]
}

// release returns the memory of a table to the pool.
func (t *table) release() {
	if t.kept != nil && cap(t.tallies) <= keptTallies {
		*t.kept = t.tallies
		tableTallies.Put(t.kept)
	}
	t.tallies, t.kept = nil, nil
}

// read opens a series, or folds it.
func (f *folder) read(r reading) error {
	g, run := r.group, f.result.run
	if g.fold != nil {
		return f.fold(r)
	}
	o := run.rangeOptions(f.result.readDescending(), f.result.query.Limit)
	o.Sketches, o.Final = g.wholes, g.final
	src, err := run.open(g.plan.series[r.order], o, r.order, &g.lease)
	g.opened[r.order], g.live[r.order] = src, src != nil
	return err
}

// fold adds the samples of a series to the table of its group.
func (f *folder) fold(r reading) error {
	g := r.group
	if g.tables[f.slice] == nil {
		g.tables[f.slice] = f.newTable()
		*g.tables[f.slice] = table{step: g.fold, buckets: g.buckets, lease: &g.lease}
	}
	f.reading, f.table, f.pos, f.extra, f.known = r, g.tables[f.slice], 0, f.extra[:0], noBucket
	if f.Summary.Final == nil {
		f.Summary.Final = f.final
	}
	f.Summary.Needs = g.fold.fold.needs
	err := f.Read(g.plan.series[r.order], f.result.run.query.Range)
	if err == nil {
		f.merge()
	}
	return err
}

// tablesAtOnce is how many tables share an allocation.
const tablesAtOnce = 32

func (f *folder) newTable() *table {
	if len(f.tables) == 0 {
		f.tables = make([]table, min(f.most, tablesAtOnce))
	}
	t := &f.tables[0]
	f.tables, f.most = f.tables[1:], f.most-1
	return t
}

// final returns the last instant of the bucket of a time. Runs are in order, so the
// bucket is probably that of the previous call, or the next one.
func (f *folder) final(ms int64) int64 {
	if !f.known.holds(ms) {
		f.known = f.bucketAt(ms)
	}
	return f.known.finalMS
}

// bucketAt finds the bucket of a time after that of f.known.
func (f *folder) bucketAt(ms int64) bucket {
	if i := f.pos; i < len(f.tallies) && f.tallies[i].holds(ms) {
		return f.tallies[i].bucket
	}
	if i := f.pos + 1; i < len(f.tallies) && f.tallies[i].holds(ms) {
		return f.tallies[i].bucket
	}
	if next := f.known.after(); next.holds(ms) && f.buckets.even() {
		return next
	}
	return f.bucketOf(ms)
}

// bucketOf searches the table for the bucket first, since calendar arithmetic is slow.
func (t *table) bucketOf(ms int64) bucket {
	i := sort.Search(len(t.tallies), func(i int) bool { return t.tallies[i].finalMS >= ms })
	if i < len(t.tallies) && t.tallies[i].startMS <= ms {
		return t.tallies[i].bucket
	}
	return t.buckets.find(ms)
}

// AddBlock adds samples of the current series.
func (f *folder) AddBlock(kind model.Kind, block *store.Block) (int64, error) {
	f.group.live[f.order] = true
	if block.Stats != nil {
		return f.addRuns(kind, block.Stats)
	}
	times := block.Times
	for i := 0; i < len(times); {
		at, err := f.at(times[i])
		if err != nil {
			return 0, err
		}
		j := query.RunEnd(times, i, at.finalMS)
		at.addRun(f.step.fold.needs, kind, &block.Columns, i, j, f.order)
		i = j
	}
	return int64(len(times)), nil
}

// addRuns adds runs and returns their number of samples.
func (f *folder) addRuns(kind model.Kind, runs []model.Stats) (samples int64, err error) {
	need := f.step.fold.needs
	for i := range runs {
		s := &runs[i]
		at, err := f.at(s.FirstMS)
		if err != nil {
			return 0, err
		}
		at.addStats(need, kind, s, f.order)
		samples += int64(s.Count)
	}
	return samples, nil
}

// at returns the tally of a time. Times of one series must ascend. The tally may move
// at the next call.
func (f *folder) at(ms int64) (*tally, error) {
	if n := len(f.extra); n > 0 && ms <= f.extra[n-1].finalMS {
		return &f.extra[n-1], nil
	}
	if f.pos < len(f.tallies) && f.tallies[f.pos].finalMS < ms {
		rest := f.tallies[f.pos+1:]
		if len(rest) > 0 && rest[0].finalMS < ms {
			f.pos += sort.Search(len(rest), func(i int) bool { return rest[i].finalMS >= ms })
		}
		f.pos++
	}
	if f.pos < len(f.tallies) && f.tallies[f.pos].startMS <= ms {
		return &f.tallies[f.pos], nil
	}
	if err := f.lease.Take(tallyBytes); err != nil {
		return nil, err
	}
	var fresh tally
	if !f.known.holds(ms) {
		f.known = f.bucketAt(ms)
	}
	fresh.reset(f.known)
	f.extra = append(f.extra, fresh)
	return &f.extra[len(f.extra)-1], nil
}

// merge moves the buckets of the finished series into the table.
func (f *folder) merge() {
	switch {
	case len(f.extra) == 0:
	case len(f.tallies) == 0:
		f.borrow()
		f.tallies = append(f.tallies, f.extra...)
	case f.tallies[len(f.tallies)-1].startMS < f.extra[0].startMS:
		f.tallies = append(f.tallies, f.extra...)
	default:
		merged := mergeTallies(f.spare[:0], f.tallies, f.extra)
		f.spare, f.tallies = f.tallies, merged
	}
}

// mergeTallies appends two ordered lists as one; it adds up equal buckets.
func mergeTallies(dst, a, b []tally) []tally {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0].startMS < b[0].startMS:
			dst, a = append(dst, a[0]), a[1:]
		case a[0].startMS > b[0].startMS:
			dst, b = append(dst, b[0]), b[1:]
		default:
			sum := a[0]
			sum.addTally(&b[0])
			dst, a, b = append(dst, sum), a[1:], b[1:]
		}
	}
	return append(append(dst, a...), b...)
}

// tallyStream yields the results of the buckets.
type tallyStream struct {
	step    *foldStep
	tallies []tally
}

func (s *tallyStream) Next(p *Point) (bool, error) {
	if len(s.tallies) == 0 {
		return false, nil
	}
	s.step.result(&s.tallies[0], p)
	s.tallies = s.tallies[1:]
	return true, nil
}
