package kairosrows

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra/cql"
	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/rowtime"
)

// WriteConfig are the settings of what is written.
type WriteConfig struct {
	Parallel     int           `yaml:"parallel" doc:"batches of samples on their way at once, 1 to 4096; statements in flight are limited besides"`
	BatchRows    int           `yaml:"batch_rows" doc:"most samples of a batch, which are of one series and row, 1 to 5000"`
	IndexCache   int           `yaml:"index_cache" doc:"row keys whose index rows are known to be written, 1000 to 100000000; some 60 bytes each. Others are written again when a sample comes"`
	IndexRefresh time.Duration `yaml:"index_refresh" doc:"index rows of rows that get samples are written again after so long, so that a delete by another node hides new samples no longer, 1s to 1h"`
	KairosDBOnly bool          `yaml:"kairosdb_only" doc:"refuse samples that make queries of KairosDB nodes fail: NaN, infinities, complex numbers and types that KairosDB does not know"`
	TagIndex     []string      `yaml:"tag_index" doc:"rules for the rows of tag_indexed_row_keys, which KairosDB nodes need for the metrics in their tag_indexed_row_key_lookup_metrics: \"include\" or \"exclude\", then all, name=, prefix= or regex=, then for some tags only tags=a,b"`
}

// DefaultWriteConfig returns the defaults.
func DefaultWriteConfig() WriteConfig {
	return WriteConfig{
		Parallel:     64,
		BatchRows:    300,
		IndexCache:   1_000_000,
		IndexRefresh: 10 * time.Minute,
		KairosDBOnly: true,
	}
}

// Validate reports all settings that are out of range.
func (c WriteConfig) Validate() error {
	var errs []error
	if c.Parallel < 1 || c.Parallel > 4096 {
		errs = append(errs, fmt.Errorf("parallel: %d: want 1 to 4096", c.Parallel))
	}
	if c.BatchRows < 1 || c.BatchRows > 5000 {
		errs = append(errs, fmt.Errorf("batch_rows: %d: want 1 to 5000", c.BatchRows))
	}
	if c.IndexCache < 1000 || c.IndexCache > 100_000_000 {
		errs = append(errs, fmt.Errorf("index_cache: %d: want 1000 to 100000000", c.IndexCache))
	}
	if c.IndexRefresh < time.Second || c.IndexRefresh > time.Hour {
		errs = append(errs, fmt.Errorf("index_refresh: %v: want 1s to 1h", c.IndexRefresh))
	}
	if _, err := ParseTagRules(c.TagIndex); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

var (
	insertSample = &cql.Statement{Name: "insert_sample",
		Text: "INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?) USING TTL 0"} // whatever the table's default is
	insertSampleTTL = &cql.Statement{Name: "insert_sample_ttl",
		Text: "INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?) USING TTL ?"}
)

const (
	// batchBytes bounds the keys, columns and values of a batch of samples.
	batchBytes = 64 << 10

	// cellBytes is what a column and the longest value take.
	cellBytes = 4 + 2 + rowtime.MaxStringBytes

	// sliceSeries is how many series get their index rows at once: enough to
	// make long batches of those of one metric.
	sliceSeries = 8192

	// workSeries is how many series a worker takes at once.
	workSeries = 16

	// refusalPause is the time between two log lines about one reason.
	refusalPause = 10 * time.Second
)

// Source is what a Writer writes: samples by series, each time of a series
// once. *spool.Generation is one.
type source interface {
	Series() iter.Seq[uint32]
	SeriesOf(id uint32) (model.Series, bool)
	Snapshot(id uint32, within model.TimeRange, run *head.Run) (bool, error)
}

// A Writer writes samples into the keyspace: it is the spool's sink.
//
// Samples of one series and row go in batches, index rows before them (see
// indexWriter). Everything is awaited; an error means that some of it may not
// be written, and the same samples are given again, with the same write
// timestamp. A sample that Cassandra refuses for good is dropped alone, counted
// by reason and logged.
//
// # Deletes that run meanwhile
//
// A delete of this node forgets the cache of index rows before it removes any.
// A Writer that relied on the cache finds its epoch moved when it has written
// the samples, and writes the index rows then, with its own write timestamp,
// which is above the delete's. Until that is done the samples do not count as
// written, and are answered from the spool. Other nodes announce theirs: see
// announcements.
type Writer struct {
	index   indexWriter
	deletes announcements
	spec    rowtime.Spec
	cfg     WriteConfig
	batch   func(ctx context.Context, stampMS int64, entries []cql.Entry) error
	wrote   func(key []byte) // tells caches of samples that a row has changed
	rules   atomic.Pointer[TagRules]
	log     *slog.Logger
	now     func() time.Time
	metrics *writeMetrics

	unregister func()

	mu       sync.Mutex
	refusals map[string]*Refusal
}

// WriterOptions are what a Writer is given to work with.
type WriterOptions struct {
	Registerer prometheus.Registerer
	Logger     *slog.Logger
	Now        func() time.Time // nil: the clock

	// Wrote is called with the key of each row that samples were written to.
	Wrote func(key []byte)

	// KeysChanged is called when row keys of a metric and row time came or went.
	KeysChanged func(metric string, rowTimeMS int64)
}

// NewWriter returns a Writer into ks. cfg must be valid.
func NewWriter(ks *Keyspace, cfg WriteConfig, o WriterOptions) (*Writer, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Wrote == nil {
		o.Wrote = func([]byte) {}
	}
	if o.KeysChanged == nil {
		o.KeysChanged = func(string, int64) {}
	}
	rules, err := ParseTagRules(cfg.TagIndex)
	if err != nil {
		return nil, err
	}
	w := &Writer{spec: ks.Spec, cfg: cfg, wrote: o.Wrote, log: o.Logger, now: o.Now, refusals: map[string]*Refusal{}}
	w.rules.Store(rules)
	w.deletes = announcements{ks: ks, own: rand.Text()}
	w.index = indexWriter{
		session: ks.Session, spec: ks.Spec, tables: ks.Tables, shards: ks.IndexShards,
		refresh: cfg.IndexRefresh, rules: w.rules.Load, now: o.Now, keysChanged: o.KeysChanged,
		seeds:      [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		rows:       newIndexCache[indexed](cfg.IndexCache),
		partitions: newIndexCache[indexedPart](max(cfg.IndexCache/4, 1000)),
	}
	if ks.Session != nil {
		w.batch = ks.Session.Batch
	}
	w.metrics = newWriteMetrics(w)
	w.index.metrics = w.metrics
	if w.unregister, err = register(o.Registerer, w.metrics.collectors()); err != nil {
		return nil, fmt.Errorf("register metrics of the keyspace's writer: %w", err)
	}
	return w, nil
}

// register registers collectors, all or none, and returns what takes them back.
func register(r prometheus.Registerer, all []prometheus.Collector) (unregister func(), err error) {
	if r == nil {
		return func() {}, nil
	}
	take := func(some []prometheus.Collector) {
		for _, c := range some {
			r.Unregister(c)
		}
	}
	for i, c := range all {
		if err := r.Register(c); err != nil {
			take(all[:i])
			return nil, err
		}
	}
	return func() { take(all) }, nil
}

// Close takes the metrics back. Nothing is written any more.
func (w *Writer) Close() { w.unregister() }

// SetTagIndex replaces the rules of tag_indexed_row_keys. Rows that get samples
// get the missing index rows with their next ones.
func (w *Writer) SetTagIndex(lines []string) error {
	rules, err := ParseTagRules(lines)
	if err != nil {
		return err
	}
	w.rules.Store(rules)
	w.forget()
	return nil
}

// forget makes all index rows be written again: they may have been deleted.
func (w *Writer) forget() {
	w.index.partitions.clear()
	w.index.rows.clear()
}

func (w *Writer) write(ctx context.Context, stampMS int64, src source) error {
	began := w.index.rows.now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pass := &writePass{w: w, src: src, stampMS: stampMS, nowMS: w.now().UnixMilli(), fail: cancel}
	work := make(chan []uint32)
	var workers sync.WaitGroup
	for range w.cfg.Parallel {
		workers.Go(func() { pass.work(ctx, work) })
	}
	err := pass.slices(func(ids []uint32) error {
		if err := pass.index(ctx, ids); err != nil {
			return err
		}
		for from := 0; from < len(ids); from += workSeries {
			select {
			case work <- ids[from:min(from+workSeries, len(ids))]:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	if err != nil {
		cancel(err)
	}
	close(work)
	workers.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("write samples: %w", context.Cause(ctx))
	}
	announced, err := w.deletes.look(ctx)
	if err != nil {
		return err
	}
	if announced {
		w.forget()
	}
	for epoch := w.index.rows.now(); epoch != began; epoch = w.index.rows.now() {
		began = epoch
		if err := pass.slices(func(ids []uint32) error { return pass.index(ctx, ids) }); err != nil {
			return fmt.Errorf("write index rows that a delete may have removed: %w", err)
		}
	}
	return nil
}

// A writePass is one call of write.
type writePass struct {
	w       *Writer
	src     source
	stampMS int64
	nowMS   int64
	fail    context.CancelCauseFunc
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
// there.
func (p *writePass) index(ctx context.Context, ids []uint32) error {
	w := p.w
	epoch := w.index.rows.now()
	var run head.Run
	var cols model.Columns
	var missing []pendingRow
	var key []byte
	hash := idHash{seeds: w.index.seeds}
	for _, id := range ids {
		series, ok, err := p.load(id, &run, &cols)
		if err != nil {
			return err
		}
		if !ok || w.refusedSeries(series) != "" {
			continue
		}
		var row pendingRow
		found, oversize := false, false
		add := func() {
			if row.id = hash.row(series, row.rowTimeMS); !w.index.fresh(&row) {
				missing = append(missing, row)
			}
		}
		for i, ms := range cols.Times {
			at := w.spec.RowTime(ms)
			if found && at != row.rowTimeMS {
				add()
				found = false
			}
			expiry, reason := p.sample(run.Kind, &cols, i)
			if reason != "" || oversize {
				continue
			}
			if !found {
				row, found = pendingRow{series: series, rowTimeMS: at}, true
				if key, err = keyOf(series, at, key[:0]); err != nil {
					found, oversize = false, true
					continue
				}
			}
			if expiry != forever {
				expiry = ceilSeconds(expiry)
			}
			row.needSec = max(row.needSec, expiry)
		}
		if found {
			add()
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return w.index.write(ctx, epoch, w.deletes.above(p.stampMS), missing)
}

func keyOf(s model.Series, rowTimeMS int64, dst []byte) ([]byte, error) {
	key, err := rowtime.Key{Metric: s.Metric, RowTimeMS: rowTimeMS, Type: s.Type, Tags: s.Tags}.Append(dst)
	if err == nil && !indexable(s) {
		err = errors.New("the tags are longer than an index row may be")
	}
	return key, err
}

// Reasons why a sample is not written, beside those of cql.Reason.
const (
	reasonExpired   = "expired"
	reasonNotFinite = "not_finite"
	reasonType      = "type_unknown_to_kairosdb"
	reasonKey       = "key_too_long"
	reasonName      = "invalid_name"
	reasonString    = "string_too_long"
	reasonText      = "invalid_utf8"
	reasonValue     = "invalid_value"
	reasonTime      = "time_too_low"
	reasonTTL       = "ttl_too_long"
)

// refusedSeries says why no sample of a series can be written, "" if some can.
func (w *Writer) refusedSeries(s model.Series) string {
	if s.Metric == "" || !utf8.ValidString(s.Metric) {
		return reasonName // no index table would take it
	}
	for name, value := range s.Tags.All() {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return reasonName
		}
	}
	switch s.Type {
	case model.TypeLong, model.TypeDouble, model.TypeString, model.TypeNull:
		return ""
	case rowtime.TypeLegacy:
		return reasonType // KairosDB decodes it only if found through row_key_index
	}
	if w.cfg.KairosDBOnly {
		return reasonType
	}
	return ""
}

// sample returns until when a sample lives, in milliseconds or forever, and why
// it can not be written, "" if it can.
func (p *writePass) sample(k model.Kind, cols *model.Columns, i int) (expiryMS int64, reason string) {
	w := p.w
	ms := cols.Times[i]
	if ms < math.MinInt64+w.spec.Width {
		return 0, reasonTime
	}
	expiryMS = model.ExpiryMS(ms, cols.TTL(i))
	switch {
	case expiryMS == forever:
	case expiryMS <= p.nowMS:
		return 0, reasonExpired
	case p.ttl(expiryMS) > model.MaxTTL || expiryMS/1000 > endOf2038+60 && w.index.limited2038():
		return 0, reasonTTL
	}
	switch k {
	case model.Double:
		if f := math.Float64frombits(cols.Values[i]); w.cfg.KairosDBOnly && (math.IsNaN(f) || math.IsInf(f, 0)) {
			return 0, reasonNotFinite
		}
	case model.String:
		text := cols.Bytes(i)
		switch {
		case !utf8.Valid(text):
			return 0, reasonText
		case len(text) > rowtime.MaxStringBytes/2 && modifiedBytes(text) > rowtime.MaxStringBytes:
			return 0, reasonString
		}
	case model.Complex:
		if len(cols.Bytes(i)) != 16 {
			return 0, reasonValue
		}
	case model.Custom:
		if len(cols.Bytes(i)) > rowtime.MaxStringBytes {
			return 0, reasonString
		}
	}
	return expiryMS, ""
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

// modifiedBytes is the length of text in modified UTF-8. At most it is twice
// that in UTF-8: one byte becomes two (NUL), four become six.
func modifiedBytes(text []byte) int {
	n := len(text)
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r == 0 {
			n++
		} else if size == 4 {
			n += 2
		}
		i += size
	}
	return n
}

// appendValue is rowtime.AppendValue, but for the payloads of NaNs: KairosDB
// would read each as NaN, and they only get here if it does not read along.
func appendValue(dst []byte, k model.Kind, cols *model.Columns, i int) ([]byte, error) {
	switch k {
	case model.Double:
		return binary.BigEndian.AppendUint64(dst, cols.Values[i]), nil
	case model.Long:
		return rowtime.AppendValue(dst, k, cols.Values[i], nil)
	case model.Null:
		return dst, nil
	case model.Complex:
		return append(dst, cols.Bytes(i)...), nil
	}
	return rowtime.AppendValue(dst, k, 0, cols.Bytes(i))
}

// work writes series until there are no more, or one failed.
func (p *writePass) work(ctx context.Context, work <-chan []uint32) {
	b := newBatcher(p.w.cfg.BatchRows)
	var run head.Run
	var cols model.Columns
	for ids := range work {
		for _, id := range ids {
			if ctx.Err() != nil {
				break
			}
			series, ok, err := p.load(id, &run, &cols)
			if err == nil && ok {
				err = p.series(ctx, b, series, run.Kind, &cols)
			}
			if err != nil {
				p.fail(err)
				break
			}
		}
	}
}

// series writes the samples of one series.
func (p *writePass) series(ctx context.Context, b *batcher, s model.Series, k model.Kind, cols *model.Columns) error {
	w := p.w
	if reason := w.refusedSeries(s); reason != "" {
		w.refuse(reason, s, cols.Times[0], len(cols.Times), nil)
		return nil
	}
	var at int64
	var err error
	open := false // b is for the row at
	for i, ms := range cols.Times {
		expiry, reason := p.sample(k, cols, i)
		if reason != "" {
			w.refuse(reason, s, ms, 1, nil)
			continue
		}
		if row := w.spec.RowTime(ms); !open || row != at {
			if err := p.flush(ctx, b, s); err != nil {
				return err
			}
			key, err := keyOf(s, row, nil)
			if err != nil {
				w.refuse(reasonKey, s, ms, len(cols.Times)-i, err)
				return nil
			}
			at, open = row, true
			b.reset(key)
		}
		column := w.spec.Column(at, ms)
		if b.full() && column != b.last {
			if err := p.flush(ctx, b, s); err != nil {
				return err
			}
		}
		if b.value, err = appendValue(b.value[:0], k, cols, i); err != nil {
			w.refuse(reasonValue, s, ms, 1, err)
			continue
		}
		b.add(ms, column, p.ttl(expiry))
	}
	return p.flush(ctx, b, s)
}

// flush sends what is in b.
func (p *writePass) flush(ctx context.Context, b *batcher, s model.Series) error {
	n := len(b.entries)
	if n == 0 {
		return nil
	}
	dropped, err := p.send(ctx, b, s, 0, n)
	if err != nil {
		b.forget() // an attempt that was given up may still read the bytes
		return err
	}
	p.w.metrics.written.Add(float64(n - dropped))
	p.w.metrics.batches.Inc()
	p.w.wrote(b.key)
	b.clear()
	return nil
}

// send sends the entries of b in [from, to). A batch that is refused for good is
// halved until the sample that is at fault is found; only that one is dropped.
func (p *writePass) send(ctx context.Context, b *batcher, s model.Series, from, to int) (dropped int, err error) {
	err = p.w.batch(ctx, p.stampMS, b.entries[from:to])
	var refused *cql.RefusedError
	if err == nil || !errors.As(err, &refused) || !faultOfSample(refused.Reason) {
		return 0, err
	}
	if refused.Reason == cql.TTLTooLong {
		p.w.index.learn2038()
	}
	if to-from == 1 {
		p.w.refuse(string(refused.Reason), s, b.times[from], 1, refused)
		return 1, nil
	}
	half := from + (to-from)/2
	for _, part := range [][2]int{{from, half}, {half, to}} {
		n, err := p.send(ctx, b, s, part[0], part[1])
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

// A batcher gathers samples of one row for a batch. Its memory is reused, so
// adding a sample allocates nothing.
type batcher struct {
	key     []byte
	value   []byte // of the sample that is about to be added
	entries []cql.Entry
	times   []int64
	args    []any
	cells   []cql.Raw // column and value of each entry
	bytes   []byte    // what cells refer to; never moved
	ttls    []int
	size    int    // bytes of all keys, columns and values
	last    uint32 // column of the last entry

	boxedKey any // key, in one interface value for all entries
}

func newBatcher(rows int) *batcher {
	b := &batcher{
		entries: make([]cql.Entry, 0, rows),
		times:   make([]int64, 0, rows),
		ttls:    make([]int, 0, rows),
	}
	b.forget()
	return b
}

// forget takes new memory for all that statements refer to.
func (b *batcher) forget() {
	rows := cap(b.entries)
	b.entries = make([]cql.Entry, 0, rows)
	b.ttls = make([]int, 0, rows)
	b.args = make([]any, 0, 4*rows)
	b.cells = make([]cql.Raw, 0, 2*rows)
	b.bytes = nil
	b.clear()
}

// clear empties b.
func (b *batcher) clear() {
	b.entries, b.times, b.args, b.cells, b.bytes, b.ttls = b.entries[:0], b.times[:0], b.args[:0], b.cells[:0], b.bytes[:0], b.ttls[:0]
	b.size = 0
}

// reset begins a row.
func (b *batcher) reset(key []byte) {
	b.clear()
	b.key = key
}

func (b *batcher) full() bool {
	n := len(b.entries)
	return n == cap(b.entries) || n > 0 && b.size >= batchBytes
}

// add adds the sample of b.value. One of the same column as the last takes its
// place: in a keyspace of seconds those of one second share a cell.
func (b *batcher) add(ms int64, column uint32, ttl int) {
	if n := len(b.entries); n > 0 && b.last == column {
		b.entries, b.times, b.ttls = b.entries[:n-1], b.times[:n-1], b.ttls[:n-1]
	}
	b.last = column
	if need := 4 + len(b.value); cap(b.bytes)-len(b.bytes) < need {
		// What was added refers to the memory of before, which stays.
		b.bytes = make([]byte, 0, max(4<<10, 2*cap(b.bytes), need))
	}
	from := len(b.bytes)
	b.bytes = binary.BigEndian.AppendUint32(b.bytes, column)
	b.bytes = append(b.bytes, b.value...)
	cell := len(b.entries) * 2
	b.cells = append(b.cells[:cell], b.bytes[from:from+4:from+4], b.bytes[from+4:len(b.bytes):len(b.bytes)])
	args := b.args[4*len(b.entries) : 4*len(b.entries) : cap(b.args)]
	b.args = b.args[:cap(b.args)]
	if len(b.entries) == 0 {
		b.boxedKey = b.key
	}
	b.size += len(b.key) + 4 + len(b.value)
	args = append(args, b.boxedKey, &b.cells[cell], &b.cells[cell+1])
	st := insertSample
	if ttl > 0 {
		st = insertSampleTTL
		b.ttls = append(b.ttls, ttl)
		args = append(args, &b.ttls[len(b.ttls)-1])
	} else {
		b.ttls = append(b.ttls, 0)
	}
	b.entries = append(b.entries, cql.Entry{Statement: st, Args: args})
	b.times = append(b.times, ms)
}

// A Refusal tells of samples that were taken in and can not be stored.
type Refusal struct {
	Reason string
	Count  int64
	LastAt time.Time
	Last   string // series, time and, where there is one, the error

	logged time.Time
	silent int64 // since then
}

// Refusals tells of all samples that were dropped since the start, by reason.
func (w *Writer) Refusals() []Refusal {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []Refusal
	for _, r := range w.refusals {
		all = append(all, *r)
	}
	return all
}

// refuse counts and tells that n samples of a series are dropped.
func (w *Writer) refuse(reason string, s model.Series, ms int64, n int, err error) {
	w.metrics.refused.WithLabelValues(reason).Add(float64(n))
	if reason == reasonExpired {
		return // nothing is lost
	}
	name := s.String()
	if len(name) > 200 {
		name = name[:200] + "..."
	}
	now := w.now()
	w.mu.Lock()
	r := w.refusals[reason]
	if r == nil {
		r = &Refusal{Reason: reason}
		w.refusals[reason] = r
	}
	r.Count += int64(n)
	r.silent += int64(n)
	r.LastAt, r.Last = now, fmt.Sprintf("%s at %d", name, ms)
	if err != nil {
		r.Last += ": " + err.Error()
	}
	tell, count := now.Sub(r.logged) >= refusalPause, r.silent
	if tell {
		r.logged, r.silent = now, 0
	}
	w.mu.Unlock()
	if tell {
		w.log.Error("samples can not be stored in Cassandra and are dropped", "reason", reason, "samples", count, "series", name, "time_ms", ms, "error", err)
	}
}

// writeMetrics count what a Writer does.
type writeMetrics struct {
	written   prometheus.Counter
	batches   prometheus.Counter
	indexRows prometheus.Counter
	refused   *prometheus.CounterVec
	cached    prometheus.GaugeFunc
	evicted   prometheus.CounterFunc
}

func newWriteMetrics(w *Writer) *writeMetrics {
	return &writeMetrics{
		written: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_kairosrows_samples_written_total", Help: "Samples written to data_points; those of a generation that is repeated count again."}),
		batches: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_kairosrows_sample_batches_total", Help: "Batches of samples of one row written to data_points."}),
		indexRows: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_kairosrows_index_rows_written_total", Help: "Rows written to row_keys, tag_indexed_row_keys and varve_row_index."}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "varve_kairosrows_samples_dropped_total", Help: "Samples that were taken in and not written, by reason."}, []string{"reason"}),
		cached: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "varve_kairosrows_index_cache_rows", Help: "Row keys whose index rows are known to be written."},
			func() float64 { n, _ := w.index.rows.size(); return float64(n) }),
		evicted: prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "varve_kairosrows_index_cache_evictions_total", Help: "Row keys that were forgotten since index_cache is too small."},
			func() float64 { _, n := w.index.rows.size(); return float64(n) }),
	}
}

func (m *writeMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.written, m.batches, m.indexRows, m.refused, m.cached, m.evicted}
}
