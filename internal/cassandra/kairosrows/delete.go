package kairosrows

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra/cql"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/store"
)

// Values of DeleteConfig.KairosDBNodes.
const (
	NodesAuto = "auto"
	NodesYes  = "yes"
	NodesNo   = "no"
)

// DeleteConfig are the settings of deletes and repairs.
type DeleteConfig struct {
	KairosDBNodes string        `yaml:"kairosdb_nodes" doc:"whether KairosDB nodes write into the keyspace: \"yes\", \"no\", or \"auto\", which looks for one in the list of hosts that they keep"`
	Horizon       time.Duration `yaml:"horizon" doc:"time after the end of a row in which KairosDB nodes may still write to it; while they do, a delete leaves its index rows, since KairosDB does not write them again"`
	Parallel      int           `yaml:"parallel" doc:"rows that a delete or a repair works on at once, 1 to 1024"`
	JobRows       int           `yaml:"job_rows" doc:"rows from which on a delete is a job: it goes on when the client has left, and after a restart, 1 to 100000000"`
}

// DefaultDeleteConfig returns the defaults.
func DefaultDeleteConfig() DeleteConfig {
	return DeleteConfig{KairosDBNodes: NodesAuto, Horizon: 24 * time.Hour, Parallel: 32, JobRows: 10_000}
}

// Validate reports all settings that are out of range.
func (c DeleteConfig) Validate() error {
	var errs []error
	if !slices.Contains([]string{NodesAuto, NodesYes, NodesNo}, c.KairosDBNodes) {
		errs = append(errs, fmt.Errorf("kairosdb_nodes: %q: want %s, %s or %s", c.KairosDBNodes, NodesAuto, NodesYes, NodesNo))
	}
	if c.Horizon < 0 {
		errs = append(errs, fmt.Errorf("horizon: %v: want 0 or more", c.Horizon))
	}
	if c.Parallel < 1 || c.Parallel > 1024 {
		errs = append(errs, fmt.Errorf("parallel: %d: want 1 to 1024", c.Parallel))
	}
	if c.JobRows < 1 || c.JobRows > 100_000_000 {
		errs = append(errs, fmt.Errorf("job_rows: %d: want 1 to 100000000", c.JobRows))
	}
	return errors.Join(errs...)
}

var (
	deleteRow = &cql.Statement{Name: "delete_row",
		Text: "DELETE FROM data_points WHERE key = ?"}
	deleteSlice = &cql.Statement{Name: "delete_slice",
		Text: "DELETE FROM data_points WHERE key = ? AND column1 >= ? AND column1 <= ?"}
	probeRow = &cql.Statement{Name: "probe_row", PageSize: 2,
		Text: "SELECT column1 FROM data_points WHERE key = ? LIMIT 1"}

	deleteRowKey = &cql.Statement{Name: "delete_row_key",
		Text: "DELETE FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND data_type = ? AND tags = ?"}
	// The static mtime stays: it is written with timestamp 1 and could not be
	// written again over a delete of the partition.
	deleteRowKeys = &cql.Statement{Name: "delete_row_keys",
		Text: "DELETE FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND data_type >= ?"}
	deleteTagRow = &cql.Statement{Name: "delete_tag_row",
		Text: "DELETE FROM varve_row_index WHERE metric = ? AND row_time = ? AND tag = ? AND value = ? AND shard = ? AND data_type = ? AND tags = ?"}
	deleteTagRows = &cql.Statement{Name: "delete_tag_rows",
		Text: "DELETE FROM varve_row_index WHERE metric = ? AND row_time = ? AND tag = ? AND value = ? AND shard = ?"}
	deleteTagIndexed = &cql.Statement{Name: "delete_tag_indexed_row_key",
		Text: "DELETE FROM tag_indexed_row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND single_tag_pair = ? AND data_type = ? AND tag_collection_hash = ? AND tags = ?"}
	deleteLegacyKey = &cql.Statement{Name: "delete_legacy_key",
		Text: "DELETE FROM row_key_index WHERE key = ? AND column1 = ?"}
	deleteRowTime = &cql.Statement{Name: "delete_row_time",
		Text: "DELETE FROM row_key_time_index WHERE metric = ? AND table_name = ? AND row_time = ?"}
	deleteRowState = &cql.Statement{Name: "delete_row_state",
		Text: "DELETE FROM varve_row_state WHERE metric = ? AND row_time = ?"}
	deleteMetricName = &cql.Statement{Name: "delete_metric_name",
		Text: "DELETE FROM string_index WHERE key = ? AND column1 = ?"}

	probeLegacyKeys = &cql.Statement{Name: "probe_legacy_keys", PageSize: 2,
		Text: "SELECT column1 FROM row_key_index WHERE key = ? LIMIT 1"}
	probeRowTime = &cql.Statement{Name: "probe_row_time", PageSize: 2,
		Text: "SELECT row_time FROM row_key_time_index WHERE metric = ? AND table_name = ? LIMIT 1"}
	probeTagIndexed = &cql.Statement{Name: "probe_tag_indexed", PageSize: 2, Scan: true,
		Text: "SELECT metric FROM tag_indexed_row_keys LIMIT 1"}
	listRowTimes = &cql.Statement{Name: "list_row_times",
		Text: "SELECT row_time FROM row_key_time_index WHERE metric = ? AND table_name = ? AND row_time >= ? AND row_time <= ?"}
	readHosts = &cql.Statement{Name: "read_hosts",
		Text: "SELECT key, WRITETIME(value) FROM service_index WHERE service = ? AND service_key = ?"}
)

const (
	// hostLife is how old an entry of a KairosDB node may be: they renew it each
	// 20 or 30 s.
	hostLife = time.Minute

	// hostsEvery is how often KairosDB nodes are looked for.
	hostsEvery = 10 * time.Second

	// deleteStep is how many rows of one row time are deleted before their index
	// rows are.
	deleteStep = 2000

	// goneLife is how long varve_row_state says of a row time without row keys
	// that it changed, in seconds: longer than any cache of row keys lives.
	goneLife = 86400
)

// A Deleter removes samples, and the index rows of rows that have none left.
//
// # What is removed
//
// Of a row that lies in the range wholly, the partition; else one range of
// columns: exactly the samples whose time, as it is read, lies in the range.
// KairosDB cuts the start off to a second in keyspaces of seconds; this does
// not. All deletes carry the write timestamp that the caller gives: what is
// written later is not touched.
//
// After each row it is probed whether it has samples left. If not, its index
// rows are removed, with the same timestamp: row_keys, tag_indexed_row_keys,
// varve_row_index, row_key_index; row_key_time_index and varve_row_state when no
// row key is left at that row time; string_index when the metric has none left.
//
// # KairosDB nodes
//
// A KairosDB node remembers which index rows it wrote and does not write them
// again. If one runs, index rows of rows that may still get samples, whose end
// is less than Horizon ago, are therefore left: else samples that it writes next
// would not be found. They are removed by a later delete or by Repair.
//
// This process' own Writer, and those of other Varve nodes, write index rows
// again: see Writer and announcements.
type Deleter struct {
	ks      *Keyspace
	cfg     DeleteConfig
	writer  *Writer
	lookup  func(context.Context, store.Selection) ([]SeriesRows, error)
	forget  func(key []byte)
	log     *slog.Logger
	now     func() time.Time
	metrics *deleteMetrics
	jobs    jobs

	unregister func()

	mu      sync.Mutex
	nodes   bool // KairosDB nodes run
	nodesAt time.Time
}

// DeleterOptions are what a Deleter is given to work with.
type DeleterOptions struct {
	Registerer prometheus.Registerer
	Logger     *slog.Logger
	Now        func() time.Time // nil: the clock

	// Node names this process in jobs, among all that work on the keyspace.
	Node string

	// Lookup finds rows. It must see what was written before it was called.
	Lookup func(context.Context, store.Selection) ([]SeriesRows, error)

	// Deleted is called with the key of each row of which samples were removed.
	Deleted func(key []byte)
}

// NewDeleter returns a Deleter. cfg must be valid. Close must be called.
func NewDeleter(ks *Keyspace, w *Writer, cfg DeleteConfig, o DeleterOptions) (*Deleter, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Deleted == nil {
		o.Deleted = func([]byte) {}
	}
	d := &Deleter{ks: ks, cfg: cfg, writer: w, lookup: o.Lookup, forget: o.Deleted, log: o.Logger, now: o.Now, metrics: newDeleteMetrics()}
	d.jobs.init(d, o.Node)
	if o.Node != "" {
		w.deletes.own = o.Node // before it writes or deletes
	}
	var err error
	if d.unregister, err = register(o.Registerer, d.metrics.collectors()); err != nil {
		d.jobs.close()
		return nil, fmt.Errorf("register metrics of deletes: %w", err)
	}
	return d, nil
}

// Delete removes the samples that del names and that were written with a
// timestamp up to stampMS. From job_rows rows on it is a job: if ctx ends before
// it is done, the error says that it goes on.
func (d *Deleter) Delete(ctx context.Context, del store.Deletion, stampMS int64) error {
	if del.Metric == "" {
		return &store.InputError{Reason: "delete: the metric name is empty"}
	}
	if del.Range.StartMS > del.Range.EndMS {
		return nil
	}
	steps, err := d.plan(ctx, del)
	if err != nil {
		return fmt.Errorf("delete from %s: %w", del.Metric, err)
	}
	rows := 0
	for _, s := range steps {
		rows += len(s.rows)
	}
	if rows < d.cfg.JobRows {
		if err := d.run(ctx, del, stampMS, steps, func(int64, int) {}); err != nil {
			return fmt.Errorf("delete from %s: %w", del.Metric, err)
		}
		return nil
	}
	return d.jobs.start(ctx, del, stampMS, steps, rows)
}

// Close stops jobs; they go on when the keyspace is opened again.
func (d *Deleter) Close() {
	d.jobs.close()
	d.unregister()
}

// A rowTimeDelete is what is deleted of one row time.
type rowTimeDelete struct {
	rowTimeMS int64
	rows      []rowDelete
}

// A rowDelete is what is deleted of one row.
type rowDelete struct {
	series   model.Series // its type is rowtime.TypeLegacy for a row of that form
	whole    bool
	from, to uint32 // columns, both inclusive, unless whole
}

// plan finds what is to be deleted, by ascending row time.
func (d *Deleter) plan(ctx context.Context, del store.Deletion) ([]rowTimeDelete, error) {
	found, err := d.lookup(ctx, store.Selection{Metric: del.Metric, Matchers: del.Matchers, Range: del.Range, AnyOrder: true})
	if err != nil {
		return nil, err
	}
	byTime := map[int64][]rowDelete{}
	type legacyRow struct {
		tags model.Tags
		ms   int64
	}
	seen := map[legacyRow]bool{}
	for _, s := range found {
		for _, row := range s.Rows {
			rd := rowDelete{series: s.Series}
			if row.Form != Typed {
				// The longs and the doubles of it are two series and one row.
				if l := (legacyRow{s.Series.Tags, row.TimeMS}); seen[l] {
					continue
				} else {
					seen[l] = true
				}
				rd.series.Type = rowtime.TypeLegacy
			}
			var none bool
			if rd.from, rd.to, rd.whole, none = deletedColumns(d.ks.Spec, row.TimeMS, del.Range); !none {
				byTime[row.TimeMS] = append(byTime[row.TimeMS], rd)
			}
		}
	}
	if len(del.Matchers) == 0 {
		// Row times that are listed and have no row keys: left by expiry.
		low, high := d.ks.Spec.RowRange(del.Range)
		times, err := d.rowTimes(ctx, del.Metric, low, high)
		if err != nil {
			return nil, err
		}
		for _, ms := range times {
			if _, _, _, none := deletedColumns(d.ks.Spec, ms, del.Range); !none {
				byTime[ms] = byTime[ms][:len(byTime[ms]):len(byTime[ms])]
			}
		}
	}
	steps := make([]rowTimeDelete, 0, len(byTime))
	for ms, rows := range byTime {
		steps = append(steps, rowTimeDelete{ms, rows})
	}
	slices.SortFunc(steps, func(a, b rowTimeDelete) int {
		if a.rowTimeMS < b.rowTimeMS {
			return -1
		}
		return 1
	})
	return steps, nil
}

func (d *Deleter) rowTimes(ctx context.Context, metric string, low, high int64) ([]int64, error) {
	var times []int64
	rows := d.ks.Session.Query(ctx, listRowTimes, metric, dataPointsTable, low, high)
	defer rows.Close()
	var ms cql.Millis
	for rows.Scan(&ms) {
		times = append(times, ms.MS)
	}
	return times, rows.Close()
}

// deletedColumns returns the columns of a row whose times, as they are read, lie
// in r: both ends inclusive. whole says that these are all that the row may
// have, none that there are none.
func deletedColumns(spec rowtime.Spec, rowTimeMS int64, r model.TimeRange) (from, to uint32, whole, none bool) {
	unit := int64(1)
	if spec.Unit == rowtime.Seconds {
		unit = 1000
	}
	lastMS := int64(math.MaxInt64) // of the last column
	if span := (spec.Width - 1) / unit * unit; rowTimeMS <= math.MaxInt64-span {
		lastMS = rowTimeMS + span
	}
	if r.StartMS > lastMS || r.EndMS < rowTimeMS {
		return 0, 0, false, true
	}
	first := int64(0) // in units from the row time
	if r.StartMS > rowTimeMS {
		offset := r.StartMS - rowTimeMS
		first = offset / unit
		if offset%unit != 0 {
			first++
		}
	}
	last := (min(r.EndMS, lastMS) - rowTimeMS) / unit
	if first > last {
		return 0, 0, false, true
	}
	whole = first == 0 && r.EndMS >= lastMS
	if spec.Unit == rowtime.Legacy {
		return uint32(first) << 1, uint32(last)<<1 | 1, whole, false // doubles of old rows have bit 0
	}
	return uint32(first), uint32(last), whole, false
}

// run does the steps. progress is told the row time that comes next, and how
// many rows were done.
func (d *Deleter) run(ctx context.Context, del store.Deletion, stampMS int64, steps []rowTimeDelete, progress func(nextMS int64, rows int)) error {
	pass := deletePass{d: d, metric: del.Metric, stampMS: stampMS, all: len(del.Matchers) == 0}
	d.writer.forget()
	err := d.writer.deletes.announce(ctx, d.now().UnixMilli(), stampMS)
	if err != nil {
		return err
	}
	if pass.keepFrom, err = d.keepFrom(ctx); err != nil {
		return err
	}
	if pass.legacy, err = d.hasLegacyKeys(ctx, del.Metric); err != nil {
		return err
	}
	if pass.tagIndexed, err = d.hasTagIndexed(ctx); err != nil {
		return err
	}
	for _, s := range steps {
		if err := pass.rowTime(ctx, s, func(rows int) { progress(s.rowTimeMS, rows) }); err != nil {
			return err
		}
	}
	if pass.emptied {
		return pass.name(ctx)
	}
	return nil
}

// keepFrom returns the row time from which on index rows have to stay:
// math.MaxInt64 if there is none.
func (d *Deleter) keepFrom(ctx context.Context) (int64, error) {
	run, err := d.kairosDBRuns(ctx)
	if err != nil || !run {
		return math.MaxInt64, err
	}
	return d.now().Add(-d.cfg.Horizon).UnixMilli() - d.ks.Spec.Width, nil
}

// kairosDBRuns reports whether a KairosDB node uses the keyspace.
func (d *Deleter) kairosDBRuns(ctx context.Context) (bool, error) {
	if d.cfg.KairosDBNodes != NodesAuto {
		return d.cfg.KairosDBNodes == NodesYes, nil
	}
	if !d.ks.Tables.ServiceIndex {
		return true, nil // their list may be in another keyspace
	}
	now := d.now()
	d.mu.Lock()
	if run := d.nodes; now.Sub(d.nodesAt) < hostsEvery && !now.Before(d.nodesAt) {
		d.mu.Unlock()
		return run, nil
	}
	d.mu.Unlock()
	run := false
	rows := d.ks.Session.Query(ctx, readHosts, "_Hosts", "Active")
	defer rows.Close()
	var key *string
	var writtenMS *int64
	for rows.Scan(&key, &writtenMS) {
		run = run || key != nil && writtenMS != nil && now.UnixMilli()-*writtenMS < hostLife.Milliseconds()
	}
	if err := rows.Close(); err != nil {
		return false, fmt.Errorf("see whether KairosDB nodes run: %w", err)
	}
	d.mu.Lock()
	d.nodes, d.nodesAt = run, now
	d.mu.Unlock()
	return run, nil
}

func (d *Deleter) hasLegacyKeys(ctx context.Context, metric string) (bool, error) {
	if !d.ks.Tables.RowKeyIndex {
		return false, nil
	}
	return d.ks.Session.One(ctx, probeLegacyKeys, []any{[]byte(metric)}, nil)
}

func (d *Deleter) hasTagIndexed(ctx context.Context) (bool, error) {
	if !d.ks.Tables.TagIndexedRowKeys {
		return false, nil
	}
	return d.ks.Session.One(ctx, probeTagIndexed, nil, nil)
}

// A deletePass is one delete at work.
type deletePass struct {
	d          *Deleter
	metric     string
	stampMS    int64
	keepFrom   int64 // index rows of row times from here on stay
	all        bool  // every series of the metric is deleted
	legacy     bool  // row_key_index knows the metric
	tagIndexed bool  // tag_indexed_row_keys has rows

	emptied bool // a row time has lost its last row key
}

// rowTime deletes what is to be deleted of one row time.
func (p *deletePass) rowTime(ctx context.Context, s rowTimeDelete, done func(rows int)) error {
	keep := s.rowTimeMS > p.keepFrom
	var empty []rowDelete
	for from := 0; from < len(s.rows); from += deleteStep {
		rows := s.rows[from:min(from+deleteStep, len(s.rows))]
		gone := make([]bool, len(rows))
		err := parallel(ctx, p.d.cfg.Parallel, len(rows), func(ctx context.Context, i int) (err error) {
			gone[i], err = p.row(ctx, s.rowTimeMS, rows[i], !keep)
			return err
		})
		if err != nil {
			return err
		}
		for i := range rows {
			if gone[i] {
				empty = append(empty, rows[i])
			}
		}
		done(len(rows))
	}
	if keep {
		p.d.metrics.kept.Add(float64(len(s.rows)))
		return nil
	}
	if len(empty) == 0 && len(s.rows) > 0 {
		return nil
	}
	whole := false
	if p.all && len(empty) == len(s.rows) && len(empty) > 0 {
		// The lookup may have known less than what is there.
		n, err := p.d.countRowKeys(ctx, p.metric, s.rowTimeMS)
		if err != nil {
			return err
		}
		whole = n <= len(empty)
	}
	return p.d.unindex(ctx, p, s.rowTimeMS, empty, whole)
}

// countRowKeys returns how many row keys there are at a row time.
func (d *Deleter) countRowKeys(ctx context.Context, metric string, rowTimeMS int64) (n int, err error) {
	rows := d.ks.Session.Query(ctx, listRowKeys, metric, dataPointsTable, rowTimeMS)
	defer rows.Close()
	var dataType cql.Raw
	for rows.Scan(&dataType, nil) {
		if dataType != nil {
			n++
		}
	}
	return n, rows.Close()
}

// row deletes samples of one row and reports whether none are left.
func (p *deletePass) row(ctx context.Context, rowTimeMS int64, r rowDelete, probe bool) (gone bool, err error) {
	key, err := rowtime.Key{Metric: p.metric, RowTimeMS: rowTimeMS, Type: r.series.Type, Tags: r.series.Tags}.Append(nil)
	if err != nil {
		return true, nil // no such row can be in data_points
	}
	if r.whole {
		err = p.d.ks.Session.Exec(ctx, deleteRow, p.stampMS, key)
	} else {
		err = p.d.ks.Session.Exec(ctx, deleteSlice, p.stampMS, key, columnBytes(r.from), columnBytes(r.to))
	}
	p.d.forget(key)
	if err != nil {
		return false, err
	}
	p.d.metrics.rows.Inc()
	if !probe {
		return false, nil
	}
	left, err := p.d.hasSamples(ctx, key)
	return !left, err
}

func columnBytes(column uint32) []byte {
	return []byte{byte(column >> 24), byte(column >> 16), byte(column >> 8), byte(column)}
}

// hasSamples reports whether a row has samples, or so many deleted ones that it
// can not be seen.
func (d *Deleter) hasSamples(ctx context.Context, key []byte) (bool, error) {
	found, err := d.ks.Session.One(ctx, probeRow, []any{key}, nil)
	var tombstones *cql.TombstoneError
	if errors.As(err, &tombstones) {
		return true, nil
	}
	return found, err
}

// unindex removes the index rows of rows without samples, all of one metric and
// row time. whole says that these are all the rows that were there.
func (d *Deleter) unindex(ctx context.Context, p *deletePass, rowTimeMS int64, empty []rowDelete, whole bool) error {
	var batches [][]cql.Entry
	groups := map[string][]cql.Entry{}
	for _, r := range empty {
		s := r.series
		if p.legacy {
			if key, err := (rowtime.Key{Metric: p.metric, RowTimeMS: rowTimeMS, Type: s.Type, Tags: s.Tags}).Append(nil); err == nil {
				groups["legacy"] = append(groups["legacy"], cql.Entry{Statement: deleteLegacyKey, Args: []any{[]byte(p.metric), key}})
			}
		}
		if s.Type == rowtime.TypeLegacy {
			continue // no other table knows them
		}
		tags := cql.TagMap{Tags: s.Tags}
		if !whole {
			groups["keys"] = append(groups["keys"], cql.Entry{Statement: deleteRowKey, Args: []any{p.metric, dataPointsTable, rowTimeMS, string(s.Type), tags}})
		}
		if d.ks.Tables.Own {
			shard := indexShard(s.Tags, d.ks.IndexShards)
			for name, value := range s.Tags.All() {
				id := fmt.Sprintf("tag %d %d %s%s", shard, len(name), name, value)
				e := cql.Entry{Statement: deleteTagRow, Args: []any{p.metric, rowTimeMS, name, value, shard, string(s.Type), tags}}
				if whole {
					e = cql.Entry{Statement: deleteTagRows, Args: e.Args[:5]}
					groups[id] = groups[id][:0]
				}
				groups[id] = append(groups[id], e)
			}
		}
		if p.tagIndexed {
			for _, row := range d.tagIndexRows(s) {
				for _, pair := range row.pairs {
					groups["pair "+pair] = append(groups["pair "+pair], cql.Entry{Statement: deleteTagIndexed,
						Args: []any{p.metric, dataPointsTable, rowTimeMS, pair, string(s.Type), int(row.hash), tags}})
				}
			}
		}
	}
	if whole {
		groups["keys"] = []cql.Entry{{Statement: deleteRowKeys, Args: []any{p.metric, dataPointsTable, rowTimeMS, ""}}}
	}
	for _, entries := range groups {
		batches = append(batches, cutBatches(entries)...)
	}
	err := parallel(ctx, d.cfg.Parallel, len(batches), func(ctx context.Context, i int) error {
		return d.ks.Session.Batch(ctx, p.stampMS, batches[i])
	})
	if err != nil {
		return err
	}
	d.metrics.unindexed.Add(float64(len(empty)))
	return d.settleRowTime(ctx, p, rowTimeMS)
}

// tagIndexRows are the rows that a series may have in tag_indexed_row_keys: by
// the rules as they are, and of a metric with all tags, which is what most have.
// The hash of others is not known.
func (d *Deleter) tagIndexRows(s model.Series) []tagIndexRow {
	every := newTagIndexRow(s.Tags, func(string) bool { return true })
	rows := []tagIndexRow{every}
	if row := d.writer.rules.Load().row(s.Metric, s.Tags); len(row.pairs) > 0 && row.hash != every.hash {
		rows = append(rows, row)
	}
	return rows
}

// settleRowTime tells other nodes that row keys of a row time are gone, and
// removes the row time if none are left.
func (d *Deleter) settleRowTime(ctx context.Context, p *deletePass, rowTimeMS int64) error {
	left, err := d.hasRowKeys(ctx, p.metric, rowTimeMS)
	if err != nil {
		return err
	}
	ttl := goneLife
	lastMS := int64(0)
	if d.ks.Tables.Own {
		var changedMS, expires *int64
		if _, err := d.ks.Session.One(ctx, selectRowState, []any{p.metric, rowTimeMS}, nil, &changedMS, &expires); err != nil {
			return err
		}
		if changedMS != nil {
			lastMS = *changedMS
		}
		if left {
			if ttl = 0; expires != nil {
				ttl = d.writer.index.ttl(expiryOf(*expires))
			}
		}
	}
	if !left {
		p.emptied = true
		if err := d.ks.Session.Exec(ctx, deleteRowTime, p.stampMS, p.metric, dataPointsTable, rowTimeMS); err != nil {
			return err
		}
		if d.ks.Tables.Own {
			if err := d.ks.Session.Exec(ctx, deleteRowState, p.stampMS, p.metric, rowTimeMS); err != nil {
				return err
			}
		}
	}
	_, err = d.writer.index.moveChanged(ctx, p.metric, rowTimeMS, lastMS, ttl)
	return err
}

func (d *Deleter) hasRowKeys(ctx context.Context, metric string, rowTimeMS int64) (bool, error) {
	var dataType *string
	found, err := d.ks.Session.One(ctx, selectFirstRowKey, []any{metric, dataPointsTable, rowTimeMS}, &dataType, nil, nil)
	var tombstones *cql.TombstoneError
	if errors.As(err, &tombstones) {
		return true, nil // it can not be seen: the row time stays
	}
	return found && dataType != nil, err
}

// name removes the name of a metric that has no row left.
func (p *deletePass) name(ctx context.Context) error {
	d := p.d
	left, err := d.ks.Session.One(ctx, probeRowTime, []any{p.metric, dataPointsTable}, nil)
	if err != nil || left {
		return err
	}
	if p.legacy {
		if left, err = d.hasLegacyKeys(ctx, p.metric); err != nil || left {
			return err
		}
	}
	return d.ks.Session.Exec(ctx, deleteMetricName, p.stampMS, []byte(metricNamesKey), d.writer.index.nameColumn(p.metric))
}

// describe is a selector for people.
func describe(del store.Deletion) string {
	var b strings.Builder
	b.WriteString(del.Metric)
	for i, m := range del.Matchers {
		b.WriteString([]string{"{", ","}[min(i, 1)])
		values := slices.Clone(m.Values)
		for _, p := range m.Patterns {
			values = append(values, "regex:"+p.String())
		}
		b.WriteString(m.Tag + "=" + strings.Join(values, "|"))
	}
	if len(del.Matchers) > 0 {
		b.WriteByte('}')
	}
	return b.String()
}

// deleteMetrics count what deletes do.
type deleteMetrics struct {
	rows, unindexed, kept prometheus.Counter
	jobs                  *prometheus.CounterVec
	running               prometheus.Gauge
}

func newDeleteMetrics() *deleteMetrics {
	return &deleteMetrics{
		rows: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_kairosrows_rows_deleted_total", Help: "Rows of data_points of which samples were deleted, wholly or in part."}),
		unindexed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_kairosrows_row_keys_deleted_total", Help: "Row keys whose index rows were removed since no sample was left."}),
		kept: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_kairosrows_row_keys_kept_total", Help: "Row keys whose index rows were left since a KairosDB node may write there."}),
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "varve_kairosrows_delete_jobs_total", Help: "Delete jobs that ended, by outcome: done, failed."}, []string{"outcome"}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "varve_kairosrows_delete_jobs_running", Help: "Delete jobs at work in this process."}),
	}
}

func (m *deleteMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.rows, m.unindexed, m.kept, m.jobs, m.running}
}
