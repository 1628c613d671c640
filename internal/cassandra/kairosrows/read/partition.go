package read

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
)

// Statements that read indexes. Page sizes keep pages near 1 MB.
var (
	readRowTimes = &cql.Statement{Name: "read_row_times", PageSize: shortRows,
		Text: "SELECT row_time FROM row_key_time_index WHERE metric = ? AND table_name = ? AND row_time >= ? AND row_time <= ?"}
	readRowStates = &cql.Statement{Name: "read_row_states", PageSize: shortRows,
		Text: "SELECT row_time, kairos_mtime, changed, WRITETIME(changed) FROM varve_row_state WHERE metric = ? AND row_time >= ? AND row_time <= ?"}
	readRowKeys = &cql.Statement{Name: "read_row_keys", Prefetch: true,
		Text: "SELECT data_type, tags, mtime, WRITETIME(mtime) FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ?"}
	readTheseRowKeys = &cql.Statement{Name: "read_these_row_keys",
		Text: "SELECT data_type, tags FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND data_type = ? AND tags IN ?"}
	readPostings      = &cql.Statement{Name: "read_postings", Many: true, Prefetch: true, Text: rowkey.SelectTagRows}
	readPostingsRaced = &cql.Statement{Name: "read_postings", Many: true, Text: rowkey.SelectTagRows}
)

// shortRows is how many rows of some numbers are in a page.
const shortRows = 5000

// racedFirst is how many row keys of one tag pair and shard are read before checking whether another pair
// has fewer, and racedNext how many further ones if that does not decide. The former are a page: a row key
// may have 64 KB, and those of all pairs and shards are read at the same time.
const (
	racedFirst = 16
	racedNext  = 200
)

// readStates reads the row times of a span in ascending order, each with its state. States are
// read before the rows that they describe.
func (l *Look) readStates(ctx context.Context, s rowkey.Span) ([]rowkey.RowTime, error) {
	var states map[int64]rowkey.RowTime
	var times []rowkey.RowTime
	tables := l.reader.ks.Tables
	err := l.parallel(ctx, 2, func(ctx context.Context, i int) (err error) {
		switch {
		case i == 0 && tables.RowKeyTimeIndex && tables.RowKeys:
			times, err = l.readRowTimes(ctx, s)
		case i == 1:
			states, err = l.readStateRows(ctx, s)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range times {
		if state, ok := states[times[i].TimeMS]; ok {
			times[i] = state
		}
	}
	return times, nil
}

// rowTimeBytes is about the memory of a row time, with its state and what a Look knows about its partition.
const rowTimeBytes = 512

func (l *Look) readRowTimes(ctx context.Context, s rowkey.Span) ([]rowkey.RowTime, error) {
	var times []rowkey.RowTime
	rows := l.query(ctx, readRowTimes, s.Metric, schema.DataPoints, s.LowMS, s.HighMS)
	defer rows.Close()
	var ms cql.Millis
	for rows.Scan(&ms) {
		if !ms.Null {
			if err := l.hold(rowTimeBytes); err != nil {
				return nil, err
			}
			times = append(times, rowkey.RowTime{TimeMS: ms.MS})
		}
	}
	l.trace[countIndexRows].Add(int64(len(times)))
	return times, rows.Close()
}

func (l *Look) readStateRows(ctx context.Context, s rowkey.Span) (map[int64]rowkey.RowTime, error) {
	states := map[int64]rowkey.RowTime{}
	if !l.reader.ks.Tables.Own {
		return states, nil
	}
	rows := l.query(ctx, readRowStates, s.Metric, s.LowMS, s.HighMS)
	defer rows.Close()
	var ms cql.Millis
	var kairos, changed, written cql.Raw
	for rows.Scan(&ms, &kairos, &changed, &written) {
		states[ms.MS] = rowkey.RowTime{TimeMS: ms.MS, State: rowkey.State{KairosMtime: rowkey.UUIDOf(kairos), Changed: rowkey.UUIDOf(changed), ChangedMS: rowkey.WrittenMS(written)}}
	}
	l.trace[countIndexRows].Add(int64(len(states)))
	return states, rows.Close()
}

// partition is what a Look knows about one partition of row_keys.
type partition struct {
	stamp once[rowkey.Stamp]
	full  once[*keyList]

	// Set when the states of a span with it are first read, and not changed afterwards.
	key   rowkey.Partition
	state rowkey.RowTime

	mu       sync.Mutex
	known    bool
	postings map[tagPair]*keyList // lists of one tag each that this Look has read
}

func (p *partition) version(s rowkey.Stamp) version {
	return version{mtime: s.Mtime, changed: p.state.Changed}
}

// unsettledLife is how long row keys are kept whose version was recent.
const unsettledLife = time.Second

// keptUntil returns until when row keys that were loaded with this stamp may be kept if the
// version does not change.
//
// A version that was recent when it was read is valid for a short time only: clocks of writers
// differ, and a later write with an earlier timestamp does not change it. The same is true if
// mtime has expired. Deletes by KairosDB do not change the version at all.
func (r *Reader) keptUntil(p *partition, s rowkey.Stamp) time.Time {
	now := r.now()
	if youngest := max(s.WrittenMS, p.state.ChangedMS); s.Mtime == (cql.UUID{}) || now.UnixMilli()-youngest < r.config.Settle.Milliseconds() {
		return now.Add(min(unsettledLife, r.config.Settle))
	}
	return now.Add(r.config.PostingsCacheAge)
}

// keepPostings keeps the row keys with a tag, for this Look and in the cache.
func (l *Look) keepPostings(p *partition, k tagPair, list *keyList, s rowkey.Stamp, since loading) {
	p.mu.Lock()
	if p.postings == nil {
		p.postings = map[tagPair]*keyList{}
	}
	p.postings[k] = list
	p.mu.Unlock()
	l.reader.postings.put(p.key, k, list, p.version(s), l.reader.keptUntil(p, s), since)
}

// readWhole is readAll in a slot.
func (l *Look) readWhole(ctx context.Context, p *partition, wanted ...*harvest) (*keyList, error) {
	return inSlot(ctx, l, func(ctx context.Context) (*keyList, error) { return l.readAll(ctx, p, wanted) })
}

// readAll reads the whole partition of row_keys, or until all of wanted are full. If the
// partition is too wide, or was not read to its end, only wanted has row keys, and readAll
// returns errMatchesOnly.
func (l *Look) readAll(ctx context.Context, p *partition, wanted []*harvest) (*keyList, error) {
	reader := l.reader
	loading := reader.postings.begin(p.key)
	in := l.newIntake(new(atomic.Int64), wanted...)
	var name, tags, mtime, written cql.Raw
	var first rowkey.Stamp
	read := int64(0)
	rows := l.query(ctx, readRowKeys, p.key.Args()...)
	defer rows.Close()
	dest := []any{&name, &tags, &mtime, &written}
	var k rowkey.Key
	var ended error
	for ended == nil && rows.Scan(dest...) {
		if read++; read == 1 {
			first = rowkey.Stamp{Mtime: rowkey.UUIDOf(mtime), WrittenMS: rowkey.WrittenMS(written)}
		}
		if name == nil || tags == nil {
			continue // a static cell that outlived the rows
		}
		if err := k.Decode(name, tags); err != nil {
			return nil, err
		}
		ended = in.add(k, len(tags))
	}
	l.trace[countIndexRows].Add(read)
	if err := rows.Close(); err != nil {
		return nil, err
	}
	l.answer(byReading)
	l.trace[countIndexBytes].Add(in.kept.Load())
	list, err := in.end(ended)
	if err != nil {
		return nil, err
	}
	list.verified = true
	reader.postings.put(p.key, tagPair{}, list, p.version(first), reader.keptUntil(p, first), loading)
	return list, nil
}

const (
	// verifyBatch is how many row keys are looked up by one statement: fewer than a first page has.
	verifyBatch = 60

	// maxVerified is up to how many row keys from the inverted index, for one lookup and row
	// time, are verified in row_keys. If there are more, series that were removed may be
	// returned, without samples.
	maxVerified = 1000
)

// existing returns the keys that are in row_keys. KairosDB does not maintain the inverted
// index, so it may have deleted some; others may have expired.
//
// If the server may store a map in an order other than the bound one, row keys cannot be found
// in this way, and all are assumed to exist.
func (l *Look) existing(ctx context.Context, p *partition, keys []rowkey.Key) ([]rowkey.Key, error) {
	if !l.reader.ordered {
		return keys, nil
	}
	byType := map[model.Type][]rowkey.Key{}
	for _, k := range keys {
		byType[k.Type] = append(byType[k.Type], k)
	}
	var batches [][]rowkey.Key
	for _, of := range byType {
		batches = slices.AppendSeq(batches, slices.Chunk(of, verifyBatch))
	}
	found := make([][]rowkey.Key, len(batches))
	err := l.parallel(ctx, len(batches), func(ctx context.Context, i int) (err error) {
		found[i], err = l.existingOf(ctx, p, batches[i])
		return err
	})
	return slices.Concat(found...), err
}

// existingOf looks for row keys of one type with one statement, or with several if a guardrail
// of the cluster allows fewer values in each.
func (l *Look) existingOf(ctx context.Context, p *partition, keys []rowkey.Key) ([]rowkey.Key, error) {
	found, err := l.readThese(ctx, p, keys)
	if len(keys) < 2 || !cql.IsRefused(err, cql.GuardrailHit) {
		return found, err
	}
	half := len(keys) / 2
	found, err = l.existingOf(ctx, p, keys[:half])
	if err != nil {
		return nil, err
	}
	more, err := l.existingOf(ctx, p, keys[half:])
	return append(found, more...), err
}

func (l *Look) readThese(ctx context.Context, p *partition, keys []rowkey.Key) (found []rowkey.Key, err error) {
	tags := make([]cql.TagMap, len(keys))
	for i, k := range keys {
		tags[i] = cql.TagMap{Tags: k.Tags}
	}
	err = rowkey.EachOf(l.query(ctx, readTheseRowKeys, append(p.key.Args(), string(keys[0].Type), tags)...), func(k rowkey.Key, _ int) error {
		found = append(found, k)
		return nil
	})
	l.trace[countIndexRows].Add(int64(len(found)))
	return found, err
}
