package kairosrows

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra/cql"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/units"
)

// ReadConfig are the settings of reading.
type ReadConfig struct {
	PostingsCacheBytes units.Bytes   `yaml:"postings_cache_bytes" doc:"memory for row keys that queries found; they are asked for again only if Cassandra says that they changed"`
	PostingsCacheAge   time.Duration `yaml:"postings_cache_age" doc:"time after which row keys are asked for again in any case: what KairosDB nodes delete is seen this late in names and tags"`
	ChunkCacheBytes    units.Bytes   `yaml:"chunk_cache_bytes" doc:"memory for samples of finished rows, packed; 0 keeps none"`
	ChunkCacheAge      time.Duration `yaml:"chunk_cache_age" doc:"time after which samples of finished rows are read from Cassandra again: what other nodes write or delete there is seen this late"`
	FinishedAfter      time.Duration `yaml:"finished_after" doc:"time after the end of a row when it counts as finished"`
	IndexReads         int           `yaml:"index_reads" doc:"reads of index partitions that one query makes at once, 1 to 256"`
	Settle             time.Duration `yaml:"settle" doc:"most that clocks of nodes may differ, plus the time a write may be under way; an index that changed later than that is read anew"`
	CoverRate          int           `yaml:"cover_rate" doc:"row keys written by KairosDB that are added to the inverted index per second, in the background; 0 adds none"`
	CoverInterval      time.Duration `yaml:"cover_interval" doc:"how often all metrics are looked through for row keys that the inverted index lacks"`
}

// DefaultReadConfig returns the defaults.
func DefaultReadConfig() ReadConfig {
	return ReadConfig{
		PostingsCacheBytes: 64 * units.MiB,
		PostingsCacheAge:   5 * time.Minute,
		ChunkCacheBytes:    32 * units.MiB,
		ChunkCacheAge:      5 * time.Minute,
		FinishedAfter:      time.Hour,
		IndexReads:         16,
		Settle:             time.Minute,
		CoverRate:          2000,
		CoverInterval:      time.Hour,
	}
}

// Validate reports all settings that can not be.
func (c ReadConfig) Validate() error {
	var errs []error
	check := func(ok bool, key, want string, got any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: want %s, got %v", key, want, got))
		}
	}
	check(c.PostingsCacheBytes >= 0, "postings_cache_bytes", "0 or more", c.PostingsCacheBytes)
	check(c.PostingsCacheAge >= 0, "postings_cache_age", "0 or more", c.PostingsCacheAge)
	check(c.ChunkCacheBytes >= 0, "chunk_cache_bytes", "0 or more", c.ChunkCacheBytes)
	check(c.ChunkCacheAge >= 0, "chunk_cache_age", "0 or more", c.ChunkCacheAge)
	check(c.FinishedAfter >= 0, "finished_after", "0 or more", c.FinishedAfter)
	check(c.IndexReads >= 1 && c.IndexReads <= 256, "index_reads", "1 to 256", c.IndexReads)
	check(c.Settle >= 0, "settle", "0 or more", c.Settle)
	check(c.CoverRate >= 0 && c.CoverRate <= 1_000_000, "cover_rate", "0 to 1000000", c.CoverRate)
	check(c.CoverInterval >= time.Second, "cover_interval", "at least 1s", c.CoverInterval)
	return errors.Join(errs...)
}

// tableName is what KairosDB writes into all columns called table_name.
const tableName = dataPointsTable

// Statements that read indexes. Page sizes keep pages near 1 MB.
var (
	readRowTimes = &cql.Statement{Name: "read_row_times",
		Text: "SELECT row_time FROM row_key_time_index WHERE metric = ? AND table_name = '" + tableName + "' AND row_time >= ? AND row_time <= ?"}
	readRowStates = &cql.Statement{Name: "read_row_states",
		Text: "SELECT row_time, kairos_mtime, changed, WRITETIME(changed) FROM varve_row_state WHERE metric = ? AND row_time >= ? AND row_time <= ?"}
	readMtime = &cql.Statement{Name: "read_mtime", PageSize: 1,
		Text: "SELECT mtime, WRITETIME(mtime), TTL(mtime) FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? LIMIT 1"}
	readRowKeys = &cql.Statement{Name: "read_row_keys", Prefetch: true,
		Text: "SELECT data_type, tags, mtime, WRITETIME(mtime) FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ?"}
	readTheseRowKeys = &cql.Statement{Name: "read_these_row_keys",
		Text: "SELECT data_type, tags FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND data_type = ? AND tags IN ?"}
	readPostings      = &cql.Statement{Name: "read_postings", Prefetch: true, Text: selectPostings}
	readPostingsRaced = &cql.Statement{Name: "read_postings", PageSize: racedPage, Text: selectPostings}
	readLegacyKeys    = &cql.Statement{Name: "read_legacy_keys",
		Text: "SELECT column1 FROM row_key_index WHERE key = ? AND column1 >= ? AND column1 < ?"}
	readAnyLegacyKey = &cql.Statement{Name: "read_any_legacy_key", Scan: true, PageSize: 1,
		Text: "SELECT key FROM row_key_index LIMIT 1"}
)

const selectPostings = "SELECT data_type, tags FROM varve_row_index WHERE metric = ? AND row_time = ? AND tag = ? AND value = ? AND shard = ?"

// racedPage is how many row keys of one tag pair and shard are read before it is
// seen whether another pair has fewer.
const racedPage = 200

// A Reader finds series and reads rows of a keyspace. It holds what is kept
// between requests: row keys and finished rows. Its methods may be called by
// many goroutines at once.
type Reader struct {
	config   ReadConfig
	ks       *Keyspace
	log      *slog.Logger
	now      func() time.Time
	chunks   *chunkCache
	postings *postingsCache
	legacy   legacyTable
	cover    *coverer

	verifies      bool // the inverted index is checked against row_keys
	badLegacyKeys prometheus.Counter
	answered      *prometheus.CounterVec
	registerer    prometheus.Registerer
}

// ReaderOptions are what a Reader is given to work with. All may be zero.
type ReaderOptions struct {
	Registerer prometheus.Registerer
	Logger     *slog.Logger
	Now        func() time.Time // nil: the clock
}

// NewReader returns a reader of ks and begins its work in the background. config
// must be valid. Close must be called.
func NewReader(ks *Keyspace, config ReadConfig, o ReaderOptions) (*Reader, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Reader{
		config: config, ks: ks, log: o.Logger, now: o.Now, registerer: o.Registerer,
		chunks:   newChunkCache(int64(config.ChunkCacheBytes), config.ChunkCacheAge, o.Now),
		postings: newPostingsCache(int64(config.PostingsCacheBytes), o.Now),
		badLegacyKeys: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_kairosrows_bad_legacy_keys_total", Help: "rows of row_key_index that hold no row key and were passed by"}),
	}
	r.answered = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "varve_kairosrows_lookups_total",
		Help: "partitions of row keys that lookups needed, by how they were answered: cached, indexed (by the inverted index), full (read whole), uncovered (read whole since the inverted index may lack what KairosDB wrote)"},
		[]string{"how"})
	r.legacy.missing = !ks.Tables.RowKeyIndex
	r.verifies = keepsMapsInOrder(ks.Session.State().Version)
	r.cover = newCoverer(r)
	if o.Registerer != nil {
		for i, c := range r.collectors() {
			if err := o.Registerer.Register(c); err != nil {
				for _, before := range r.collectors()[:i] {
					o.Registerer.Unregister(before)
				}
				return nil, fmt.Errorf("register metrics of the keyspace's reader: %w", err)
			}
		}
	}
	r.cover.start()
	return r, nil
}

// Close ends the work in the background.
func (r *Reader) Close() {
	r.cover.close()
	if r.registerer != nil {
		for _, c := range r.collectors() {
			r.registerer.Unregister(c)
		}
	}
}

func (r *Reader) collectors() []prometheus.Collector {
	all := []prometheus.Collector{r.badLegacyKeys, r.answered}
	all = append(all, r.chunks.collectors()...)
	all = append(all, r.postings.collectors()...)
	return append(all, r.cover.collectors()...)
}

// RowChanged tells that this process wrote samples into a row of data_points, or
// deleted some. It is called after that was done, with the row's key.
func (r *Reader) RowChanged(key []byte) { r.chunks.forget(key) }

// RowKeysChanged tells that this process added or removed row keys of a metric
// and row time. It is called after that was done. Other processes see it by
// varve_row_state.
func (r *Reader) RowKeysChanged(metric string, rowTimeMS int64) {
	r.postings.forget(partKey{metric, rowTimeMS})
}

// finished reports whether a row gets no more samples, as far as one can tell.
func (r *Reader) finished(row Row) bool {
	return row.TimeMS+r.ks.Spec.Width < r.now().Add(-r.config.FinishedAfter).UnixMilli()
}

// legacyTable says whether row_key_index has anything in it. KairosDB has not
// written there since 1.2, so in most keyspaces it is empty, and asking for each
// query would be a waste.
type legacyTable struct {
	missing bool
	empty   atomic.Bool
	lookAt  atomic.Int64 // Unix seconds of the next look
}

// legacyLookEvery is how often an empty row_key_index is looked at.
const legacyLookEvery = 10 * time.Minute

// mayHold reports whether row_key_index is worth a statement.
func (t *legacyTable) mayHold(ctx context.Context, r *Reader) (bool, error) {
	if t.missing {
		return false, nil
	}
	now := r.now()
	if due := t.lookAt.Load(); now.Unix() < due || !t.lookAt.CompareAndSwap(due, now.Add(legacyLookEvery).Unix()) {
		return !t.empty.Load(), nil
	}
	var key cql.Raw
	found, err := r.ks.Session.One(ctx, readAnyLegacyKey, nil, &key)
	if err != nil {
		t.lookAt.Store(0)
		return false, err
	}
	t.empty.Store(!found)
	return found, nil
}

// A rowState is a row of varve_row_state and the row time it is of.
type rowState struct {
	timeMS      int64
	kairosMtime cql.UUID // zero: none
	changed     cql.UUID // zero: none
	changedMS   int64    // write time of changed
}

// span is the row times that a lookup is about.
type span struct {
	metric        string
	lowMS, highMS int64
}

// readStates reads the row times of a span in ascending order, each with its
// state. States are read before anything that they speak of.
func (l *Look) readStates(ctx context.Context, s span) ([]rowState, error) {
	var states map[int64]rowState
	var times []rowState
	tables := l.reader.ks.Tables
	err := l.parallel(ctx, 2, func(ctx context.Context, i int) (err error) {
		switch {
		case i == 0 && tables.RowKeyTimeIndex && tables.RowKeys:
			times, err = l.readRowTimes(ctx, s)
		case i == 1 && tables.Own:
			states, err = l.readStateRows(ctx, s)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range times {
		if state, ok := states[times[i].timeMS]; ok {
			times[i] = state
		}
	}
	return times, nil
}

func (l *Look) readRowTimes(ctx context.Context, s span) ([]rowState, error) {
	var times []rowState
	rows := l.query(ctx, readRowTimes, s.metric, s.lowMS, s.highMS)
	defer rows.Close()
	var ms cql.Millis
	for rows.Scan(&ms) {
		if !ms.Null {
			times = append(times, rowState{timeMS: ms.MS})
		}
	}
	l.trace.indexRows.Add(int64(len(times)))
	return times, rows.Close()
}

func (l *Look) readStateRows(ctx context.Context, s span) (map[int64]rowState, error) {
	states := map[int64]rowState{}
	rows := l.query(ctx, readRowStates, s.metric, s.lowMS, s.highMS)
	defer rows.Close()
	var ms cql.Millis
	var kairos, changed, written cql.Raw
	for rows.Scan(&ms, &kairos, &changed, &written) {
		states[ms.MS] = rowState{timeMS: ms.MS, kairosMtime: uuidOf(kairos), changed: uuidOf(changed), changedMS: writtenMS(written)}
	}
	l.trace.indexRows.Add(int64(len(states)))
	return states, rows.Close()
}

// uuidOf reads a UUID; null is zero.
func uuidOf(raw []byte) (u cql.UUID) {
	copy(u[:], raw)
	return u
}

// writtenMS reads a write time, which this keyspace has in milliseconds; null
// is 0. Anything far beyond was written in microseconds.
func writtenMS(raw []byte) int64 {
	if len(raw) != 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(raw))
}

// A stamp is row_keys.mtime of a partition and when it was written.
type stamp struct {
	mtime   cql.UUID // zero: null
	written int64    // ms
}

// partition is what a Look knows of one partition of row_keys.
type partition struct {
	stamp once[stamp]
	full  once[*keyList]

	// Known from the first time that the states of a span with it were read, and
	// not changed after.
	key   partKey
	state rowState

	mu       sync.Mutex
	known    bool
	postings map[postingKey]*once[*keyList]
}

func (p *partition) posting(k postingKey) *once[*keyList] {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.postings[k]
	if o == nil {
		o = new(once[*keyList])
		if p.postings == nil {
			p.postings = map[postingKey]*once[*keyList]{}
		}
		p.postings[k] = o
	}
	return o
}

// readStamp reads the mtime of a partition.
func (l *Look) readStamp(ctx context.Context, k partKey) (stamp, error) {
	var mtime, written cql.Raw
	l.trace.statements.Add(1)
	_, err := l.reader.ks.Session.One(ctx, readMtime, []any{k.metric, tableName, k.timeMS}, &mtime, &written, nil)
	return stamp{uuidOf(mtime), writtenMS(written)}, err
}

// covered reports whether varve_row_index holds every row key of the partition:
// either only Varve writes there, or the coverage pass has seen KairosDB's last
// insert. Of a partition whose mtime is null, because it expired, nothing is
// known.
func (p *partition) covered(s stamp) bool {
	return s.mtime != (cql.UUID{}) && p.state.kairosMtime == s.mtime
}

func (p *partition) version(s stamp) version {
	return version{mtime: s.mtime, changed: p.state.changed}
}

// unsettledLife is how long row keys are kept whose version was young.
const unsettledLife = time.Second

// keptUntil returns until when what was loaded with this stamp may be kept if the
// version stays.
//
// A version that was young when it was read is good for a short time only: the
// clocks of two writers differ, and a write with an earlier timestamp does not
// move it. The same holds where mtime has expired. And KairosDB does not move it
// when it deletes.
func (r *Reader) keptUntil(p *partition, s stamp) time.Time {
	now := r.now()
	if youngest := max(s.written, p.state.changedMS); s.mtime == (cql.UUID{}) || now.UnixMilli()-youngest < r.config.Settle.Milliseconds() {
		return now.Add(min(unsettledLife, r.config.Settle))
	}
	return now.Add(r.config.PostingsCacheAge)
}

// errEnough ends a read of row keys of which there are more than wanted.
var errEnough = errors.New("more row keys than wanted")

// readAll reads the whole partition of row_keys. more is asked for each key and
// may end the reading with errEnough.
func (l *Look) readAll(ctx context.Context, p *partition, more func(rowKey) bool) (*keyList, error) {
	reader := l.reader
	generation := reader.postings.begin(p.key)
	list := new(keyList)
	var d keyDecoder
	var name, tags, mtime, written cql.Raw
	var first stamp
	read := int64(0)
	rows := l.query(ctx, readRowKeys, p.key.metric, tableName, p.key.timeMS)
	defer rows.Close()
	dest := []any{&name, &tags, &mtime, &written}
	for rows.Scan(dest...) {
		if read++; read == 1 {
			first = stamp{uuidOf(mtime), writtenMS(written)}
		}
		if name == nil || tags == nil {
			continue // a static cell that outlived the rows
		}
		if err := l.addKey(list, &d, name, tags, more); err != nil {
			return nil, err
		}
	}
	l.trace.indexRows.Add(read)
	if err := rows.Close(); err != nil {
		return nil, err
	}
	list.verified = true
	l.answer(byReading)
	l.trace.indexBytes.Add(list.bytes)
	reader.postings.put(postingKey{partKey: p.key}, list, p.version(first), reader.keptUntil(p, first), generation)
	return list, nil
}

const (
	// verifyBatch is how many row keys are looked up by one statement.
	verifyBatch = 100

	// maxVerified is the most row keys, of one lookup and row time, that the
	// inverted index gave and that are looked for in row_keys before they are
	// believed to exist. Of more, some that are gone may be shown, without samples.
	maxVerified = 1000
)

// existing returns those of keys that are in row_keys. KairosDB, which knows
// nothing of the inverted index, may have deleted some; others have expired.
//
// Where a map may be stored in another order than it is bound in, row keys are
// not found in this way, and all are believed to exist.
func (l *Look) existing(ctx context.Context, p *partition, keys []rowKey) ([]rowKey, error) {
	if !l.reader.verifies {
		return keys, nil
	}
	byType := map[model.Type][]cql.TagMap{}
	for _, k := range keys {
		byType[k.typ] = append(byType[k.typ], cql.TagMap{Tags: k.tags})
	}
	type batch struct {
		typ  model.Type
		tags []cql.TagMap
	}
	var batches []batch
	for typ, tags := range byType {
		for part := range slices.Chunk(tags, verifyBatch) {
			batches = append(batches, batch{typ, part})
		}
	}
	found := make([][]rowKey, len(batches))
	err := l.parallel(ctx, len(batches), func(ctx context.Context, i int) error {
		rows := l.query(ctx, readTheseRowKeys, p.key.metric, tableName, p.key.timeMS, string(batches[i].typ), batches[i].tags)
		defer rows.Close()
		list := new(keyList)
		var d keyDecoder
		var name, tags cql.Raw
		for rows.Scan(&name, &tags) {
			if name == nil || tags == nil {
				continue
			}
			if err := l.addKey(list, &d, name, tags, nil); err != nil {
				return err
			}
		}
		found[i] = list.keys
		l.trace.indexRows.Add(int64(len(list.keys)))
		return rows.Close()
	})
	return slices.Concat(found...), err
}

// keepsMapsInOrder reports whether a release of Cassandra stores maps in one
// order, whatever they were bound in (CASSANDRA-17623).
func keepsMapsInOrder(version string) bool {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); n < 2 {
		return false
	}
	switch {
	case major >= 5 || major == 4 && minor > 0:
		return true
	case major == 4:
		return patch >= 5
	}
	return major == 3 && (minor == 0 && patch >= 28 || minor == 11 && patch >= 14)
}

func (l *Look) addKey(list *keyList, d *keyDecoder, name, rawTags []byte, more func(rowKey) bool) error {
	tags, err := d.tagsOf(rawTags)
	if err != nil {
		return fmt.Errorf("row key of type %s: %w", name, err)
	}
	k := rowKey{d.typeOf(name), tags}
	list.add(k, len(rawTags))
	if more != nil && !more(k) {
		return errEnough
	}
	return nil
}

// readLegacy reads the keys of row_key_index in a span. Negative row times come
// after the others there.
func (l *Look) readLegacy(ctx context.Context, s span) ([]rowtime.Key, error) {
	may, err := l.reader.legacy.mayHold(ctx, l.reader)
	if err != nil || !may {
		return nil, err
	}
	parts := []span{s}
	if s.lowMS < 0 && s.highMS >= 0 {
		parts = []span{{s.metric, s.lowMS, -1}, {s.metric, 0, s.highMS}}
	}
	var keys []rowtime.Key
	for _, part := range parts {
		if keys, err = l.readLegacySlice(ctx, part, keys); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

func (l *Look) readLegacySlice(ctx context.Context, s span, keys []rowtime.Key) ([]rowtime.Key, error) {
	rows := l.query(ctx, readLegacyKeys, []byte(s.metric),
		rowtime.AppendIndexBound(nil, s.metric, s.lowMS, false), rowtime.AppendIndexBound(nil, s.metric, s.highMS, true))
	defer rows.Close()
	var column cql.Raw
	for rows.Scan(&column) {
		l.trace.indexRows.Add(1)
		k, err := rowtime.ParseKey(string(column))
		if err != nil || k.Metric != s.metric {
			l.reader.badLegacyKeys.Inc() // KairosDB can not read it either
			continue
		}
		keys = append(keys, k)
	}
	return keys, rows.Close()
}

// legacySeries returns the series that a key of row_key_index stands for, and in
// which form.
func legacySeries(k rowtime.Key) []legacyRow {
	if k.Type != rowtime.TypeLegacy {
		return []legacyRow{{rowKey{k.Type, k.Tags}, Row{k.RowTimeMS, Typed}}}
	}
	return []legacyRow{
		{rowKey{model.TypeLong, k.Tags}, Row{k.RowTimeMS, LegacyLong}},
		{rowKey{model.TypeDouble, k.Tags}, Row{k.RowTimeMS, LegacyDouble}},
	}
}

type legacyRow struct {
	key rowKey
	row Row
}
