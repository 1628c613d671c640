package read

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/work"
)

// A Look is the access of one request to the index. It reads no part of the index twice, so
// that all entries of a request cost one read of each metric. It may or may not see later
// changes. A Look is safe for concurrent use. It should serve a single request only, since
// everything that it has read stays in memory.
type Look struct {
	reader *Reader
	slots  chan struct{} // index reads in flight
	trace  counters
	lag    time.Duration // Config.KairosDBLag, 0 for a Look that is Current
	now    bool          // see Current
	level  cql.Level     // of all reads: Configured, or Lasting if now is set and the two differ
	beside once[bool]    // whether KairosDB nodes may write meanwhile
	holder atomic.Value  // Hold of the request, a func(bytes int64) error; none if nobody counts its memory

	mu         sync.Mutex
	states     map[rowkey.Span]*once[[]rowkey.RowTime]
	legacy     map[rowkey.Span]*once[[]legacyRow]
	partitions map[rowkey.Partition]*partition
	texts      map[textsOf]*once[[]string]
}

// Look returns a Look for one request.
func (r *Reader) Look() *Look {
	return &Look{
		reader: r, lag: r.config.KairosDBLag, slots: make(chan struct{}, r.config.IndexReads),
		states: map[rowkey.Span]*once[[]rowkey.RowTime]{}, legacy: map[rowkey.Span]*once[[]legacyRow]{}, partitions: map[rowkey.Partition]*partition{},
		texts: map[textsOf]*once[[]string]{},
	}
}

// holdBy sets which memory everything that the Look reads is taken from.
func (l *Look) holdBy(hold func(bytes int64) error) {
	if hold != nil {
		l.holder.Store(hold)
	}
}

// hold reserves memory for what the Look keeps, or gives some back.
func (l *Look) hold(bytes int64) error {
	if hold, ok := l.holder.Load().(func(bytes int64) error); ok && bytes != 0 {
		return hold(bytes)
	}
	return nil
}

// Current implements layout.Look. A copy of row keys that was read at less than a quorum is
// as old as the replica that was asked, so such copies are not used either. In a keyspace of
// seconds, reads do not begin earlier than their range, as those of KairosDB's queries do.
func (l *Look) Current() {
	l.lag, l.now = 0, true
	if !l.reader.ks.Session.SameReads(cql.Configured, cql.Lasting) {
		l.level = cql.Lasting
	}
}

// newList returns an empty list for row keys that this Look reads.
func (l *Look) newList() *keyList { return &keyList{level: l.level} }

// chunkAge is how old copies of finished rows may be. KairosDB nodes write late samples into
// finished rows, and delete from them, without announcement, and their own clients see that at
// once. So while one runs, copies may be at most as old as cached row keys may be:
// Config.KairosDBLag.
func (l *Look) chunkAge(ctx context.Context) time.Duration {
	age := l.reader.config.ChunkCacheAge
	if l.now || age <= 0 {
		return 0
	}
	beside, _ := l.beside.get(ctx, func() (bool, error) {
		run, err := l.reader.kairosDB(ctx)
		return run || err != nil, ctx.Err()
	})
	if beside || ctx.Err() != nil {
		age = min(age, l.lag)
	}
	return age
}

func (l *Look) query(ctx context.Context, st *cql.Statement, args ...any) *cql.Rows {
	l.trace[countStatements].Add(1)
	return l.reader.ks.Session.QueryAt(ctx, l.level, st, args...)
}

// kept returns a list of row keys that an earlier Look has read, nil if there is
// none that is valid.
func (l *Look) kept(p *partition, k tagPair, s rowkey.Stamp) *keyList {
	list := l.reader.postings.get(p.key, k, p.version(s), l.lag)
	if list != nil && list.level < l.level {
		return nil // put will replace it
	}
	return list
}

// once is a value that is loaded once. Concurrent callers wait for the first load.
// If it fails, perhaps since its context ended, each caller loads for itself.
type once[T any] struct {
	lock   chan struct{} // holds a token while a caller loads
	init   sync.Once
	loaded atomic.Bool
	value  T
}

func (o *once[T]) get(ctx context.Context, load func() (T, error)) (T, error) {
	if o.loaded.Load() {
		return o.value, nil
	}
	o.init.Do(func() { o.lock = make(chan struct{}, 1) })
	var none T
	select {
	case o.lock <- struct{}{}:
	case <-ctx.Done():
		return none, ctx.Err()
	}
	defer func() { <-o.lock }()
	if o.loaded.Load() {
		return o.value, nil
	}
	v, err := load()
	if err != nil {
		return none, err
	}
	o.value = v
	o.loaded.Store(true)
	return v, nil
}

// parallel calls f for 0..n-1, with at most index_reads concurrent calls in the whole Look, and
// returns the first error. f must not call parallel.
func (l *Look) parallel(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	return work.Parallel(ctx, cap(l.slots), n, "read a part of an index", func(ctx context.Context, i int) error {
		select {
		case l.slots <- struct{}{}:
			defer func() { <-l.slots }()
			return f(ctx, i)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// inSlot calls load, which makes one read of the index, in a slot.
func inSlot[T any](ctx context.Context, l *Look, load func(context.Context) (T, error)) (v T, err error) {
	err = l.parallel(ctx, 1, func(ctx context.Context, _ int) (err error) {
		v, err = load(ctx)
		return err
	})
	return v, err
}

// memo returns the entry of m under k, and creates it if it is missing.
func memo[K comparable, V any](l *Look, m map[K]*V, k K) *V {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := m[k]
	if v == nil {
		v = new(V)
		m[k] = v
	}
	return v
}

// partition returns the partition of a row time, with the given state when it is first used.
func (l *Look) partition(metric string, state rowkey.RowTime) *partition {
	k := rowkey.Partition{Metric: metric, TimeMS: state.TimeMS}
	p := memo(l, l.partitions, k)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known {
		p.key, p.state, p.known = k, state, true
	}
	return p
}

// stampOf returns the mtime of a partition, read once.
func (l *Look) stampOf(ctx context.Context, k rowkey.Partition) (rowkey.Stamp, error) {
	return memo(l, l.partitions, k).stamp.get(ctx, func() (rowkey.Stamp, error) {
		return inSlot(ctx, l, func(ctx context.Context) (rowkey.Stamp, error) {
			l.trace[countStatements].Add(1)
			return rowkey.ReadStamp(ctx, l.reader.ks.Session, k, l.level)
		})
	})
}
