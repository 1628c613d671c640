package kairosrows

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/model"
	"varve/internal/rowtime"
)

// RepairOptions say how a repair is done.
type RepairOptions struct {
	DryRun bool // only count
	Rate   int  // most rows and row keys that are looked at per second, 0 for no bound

	// Grace protects index rows that were written less than this before the
	// repair: their samples may be on the way. 0 means an hour. It has to be
	// longer than index_refresh of all Varve nodes.
	Grace time.Duration

	// Progress, if not nil, is told the numbers so far after each part of the
	// walk.
	Progress func(RepairReport)
}

// A RepairReport says what a repair has looked at and found. What it found it
// has put right, unless it is a dry run.
type RepairReport struct {
	Phase       string // what is walked over at present
	Part, Parts int    // of this phase

	Rows       int64 // of data_points
	RowKeys    int64 // of row_keys
	TagRows    int64 // of varve_row_index
	RowTimes   int64 // of row_key_time_index
	Names      int64 // of string_index
	Unreadable int64 // keys of data_points that are none of KairosDB's

	Unindexed    int64 // rows with samples and without index rows: added
	DeadRowKeys  int64 // row keys without samples: removed
	DeadTagRows  int64 // rows of varve_row_index without a row key: removed
	DeadRowTimes int64 // row times without row keys: removed
	DeadNames    int64 // names of metrics without rows: removed
	Kept         int64 // row keys without samples that a KairosDB node may still use: left
}

// Changes is how many faults were found.
func (r RepairReport) Changes() int64 {
	return r.Unindexed + r.DeadRowKeys + r.DeadTagRows + r.DeadRowTimes + r.DeadNames
}

var (
	scanRows = &cql.Statement{Name: "scan_rows", Scan: true, PageSize: 1000,
		Text: "SELECT DISTINCT key FROM data_points WHERE token(key) > ? AND token(key) <= ?"}
	scanRowKeys = &cql.Statement{Name: "scan_row_keys", Scan: true, PageSize: 1000,
		Text: "SELECT DISTINCT metric, table_name, row_time FROM row_keys WHERE token(metric, table_name, row_time) > ? AND token(metric, table_name, row_time) <= ?"}
	scanTagRows = &cql.Statement{Name: "scan_tag_rows", Scan: true, PageSize: 1000,
		Text: "SELECT metric, row_time, tag, value, shard, data_type, tags FROM varve_row_index WHERE token(metric, row_time, tag, value, shard) > ? AND token(metric, row_time, tag, value, shard) <= ?"}
	scanRowTimes = &cql.Statement{Name: "scan_row_times", Scan: true, PageSize: 1000,
		Text: "SELECT metric, row_time FROM row_key_time_index WHERE token(metric) > ? AND token(metric) <= ?"}
	listNames = &cql.Statement{Name: "list_metric_names", PageSize: 1000,
		Text: "SELECT column1 FROM string_index WHERE key = ?"}
	listRowKeys = &cql.Statement{Name: "list_row_keys", PageSize: 1000,
		Text: "SELECT data_type, tags FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ?"}

	findRowKey = &cql.Statement{Name: "find_row_key", PageSize: 2,
		Text: "SELECT data_type FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND data_type = ? AND tags = ?"}
	findTagRow = &cql.Statement{Name: "find_tag_row", PageSize: 2,
		Text: "SELECT data_type FROM varve_row_index WHERE metric = ? AND row_time = ? AND tag = ? AND value = ? AND shard = ? AND data_type = ? AND tags = ?"}
	findLegacyKey = &cql.Statement{Name: "find_legacy_key", PageSize: 2,
		Text: "SELECT column1 FROM row_key_index WHERE key = ? AND column1 = ?"}
	findRowTime = &cql.Statement{Name: "find_row_time", PageSize: 2,
		Text: "SELECT row_time FROM row_key_time_index WHERE metric = ? AND table_name = ? AND row_time = ?"}
	readLastTTL = &cql.Statement{Name: "read_last_ttl", PageSize: 2,
		Text: "SELECT TTL(value) FROM data_points WHERE key = ? ORDER BY column1 DESC LIMIT 1"}
	insertLegacyKey = &cql.Statement{Name: "insert_legacy_key",
		Text: "INSERT INTO row_key_index (key, column1, value) VALUES (?, ?, ?)"}
)

const (
	// repairParts is how many ranges of tokens a table is walked in.
	repairParts = 64

	// repairChunk is how many rows are looked at before the rate is kept.
	repairChunk = 500

	repairGrace = time.Hour
)

// A repair is one walk over all tables.
//
// Index rows are removed with a write timestamp of Grace before the repair
// began, so that those which were written since, for samples that are on their
// way, survive. They are added with the time at which it began, so that deletes
// that ran meanwhile win. A row from which index rows were removed is looked at
// once more.
type repair struct {
	d       *Deleter
	o       RepairOptions
	addMS   int64 // write timestamp of what is added
	dropMS  int64 // and of what is removed
	keep    int64 // row times from which on index rows stay
	indexed bool  // tag_indexed_row_keys has rows
	legacy  bool  // row_key_index has
	seen    atomic.Int64
	began   time.Time
	report  RepairReport // of the one goroutine that walks; counters in counts

	counts struct {
		unindexed, deadRowKeys, deadTagRows, kept atomic.Int64
	}
}

// Repair walks over data_points and the index tables, finds rows that are not in
// the index and index rows that lead nowhere, and puts them right. It may run
// beside all else; it takes some statements for each row and row key.
func (d *Deleter) Repair(ctx context.Context, o RepairOptions) (RepairReport, error) {
	if o.Grace == 0 {
		o.Grace = repairGrace
	}
	now := d.now()
	r := &repair{d: d, o: o, addMS: now.UnixMilli(), dropMS: now.Add(-o.Grace).UnixMilli(), began: now}
	var err error
	if r.keep, err = d.keepFrom(ctx); err == nil {
		if r.indexed, err = d.hasTagIndexed(ctx); err == nil && d.ks.Tables.RowKeyIndex {
			r.legacy, err = d.ks.Session.One(ctx, readAnyLegacyKey, nil, nil)
		}
	}
	phases := []struct {
		name string
		walk func(ctx context.Context, from, to int64) error
		skip bool
	}{
		{"rows without index", r.rows, false},
		{"row keys without samples", r.rowKeys, false},
		{"tags without row key", r.tagRows, !d.ks.Tables.Own},
		{"row times without row keys", r.rowTimes, false},
	}
	for _, phase := range phases {
		if err != nil || phase.skip {
			continue
		}
		r.report.Phase, r.report.Part, r.report.Parts = phase.name, 0, repairParts
		for part := 0; part < repairParts && err == nil; part++ {
			from, to := tokens(part)
			if err = phase.walk(ctx, from, to); err == nil {
				r.tell(part + 1)
			}
		}
	}
	if err == nil {
		r.report.Phase, r.report.Part, r.report.Parts = "metrics without rows", 0, 1
		if err = r.names(ctx); err == nil {
			r.tell(1)
		}
	}
	r.tell(r.report.Part)
	if err != nil {
		err = fmt.Errorf("repair, %s, part %d of %d: %w", r.report.Phase, r.report.Part+1, r.report.Parts, err)
	}
	return r.report, err
}

// tokens returns a part of the ring: from exclusive, to inclusive. No partition
// has the lowest token.
func tokens(part int) (from, to int64) {
	const width = math.MaxUint64/repairParts + 1
	at := func(i int) int64 { return int64(uint64(i)*width + 1<<63) }
	if part == repairParts-1 {
		return at(part), math.MaxInt64
	}
	return at(part), at(part + 1)
}

func (r *repair) tell(part int) {
	r.report.Part = part
	r.report.Unindexed, r.report.DeadRowKeys = r.counts.unindexed.Load(), r.counts.deadRowKeys.Load()
	r.report.DeadTagRows, r.report.Kept = r.counts.deadTagRows.Load(), r.counts.kept.Load()
	if r.o.Progress != nil {
		r.o.Progress(r.report)
	}
}

// pace waits until n more rows may be looked at.
func (r *repair) pace(ctx context.Context, n int) error {
	seen := r.seen.Add(int64(n))
	if r.o.Rate <= 0 {
		return ctx.Err()
	}
	due := r.began.Add(time.Duration(float64(seen) / float64(r.o.Rate) * float64(time.Second)))
	wait := due.Sub(r.d.now())
	if wait <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rows walks over data_points.
func (r *repair) rows(ctx context.Context, from, to int64) error {
	rows := r.d.ks.Session.Query(ctx, scanRows, from, to)
	defer rows.Close()
	var keys []rowtime.Key
	flush := func() error {
		err := r.indexRows(ctx, keys)
		keys = keys[:0]
		return err
	}
	var raw cql.Raw
	for rows.Scan(&raw) {
		r.report.Rows++
		key, err := rowtime.ParseKey(string(raw))
		if err != nil {
			r.report.Unreadable++
			continue
		}
		if keys = append(keys, key); len(keys) == repairChunk {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return errors.Join(rows.Close(), flush())
}

// indexRows adds the index rows of rows that lack any.
func (r *repair) indexRows(ctx context.Context, keys []rowtime.Key) error {
	if len(keys) == 0 {
		return nil
	}
	if err := r.pace(ctx, len(keys)); err != nil {
		return err
	}
	missing := make([]bool, len(keys))
	needs := make([]int64, len(keys))
	err := parallel(ctx, r.d.cfg.Parallel, len(keys), func(ctx context.Context, i int) (err error) {
		if missing[i], err = r.lacksIndex(ctx, keys[i]); err == nil && missing[i] {
			needs[i], missing[i], err = r.expiry(ctx, keys[i])
		}
		return err
	})
	if err != nil {
		return err
	}
	index := r.d.writer.index.apart()
	var add []pendingRow
	for i, k := range keys {
		if !missing[i] {
			continue
		}
		r.counts.unindexed.Add(1)
		switch {
		case r.o.DryRun:
		case k.Type == rowtime.TypeLegacy:
			if err := r.addLegacy(ctx, k); err != nil {
				return err
			}
		default:
			s := model.Series{Metric: k.Metric, Tags: k.Tags, Type: k.Type}
			hash := idHash{seeds: index.seeds}
			add = append(add, pendingRow{series: s, rowTimeMS: k.RowTimeMS, needSec: needs[i], id: hash.row(s, k.RowTimeMS)})
		}
	}
	if len(add) == 0 {
		return nil
	}
	return index.write(ctx, 0, r.addMS, add)
}

// addLegacy puts the key of an old row into row_key_index, where KairosDB looks
// for it.
func (r *repair) addLegacy(ctx context.Context, k rowtime.Key) error {
	key, err := k.Append(nil)
	if err != nil || !r.d.ks.Tables.RowKeyIndex {
		return err
	}
	if err := r.d.ks.Session.Exec(ctx, insertLegacyKey, r.addMS, []byte(k.Metric), key, stringIndexValue); err != nil {
		return err
	}
	return r.d.ks.Session.Exec(ctx, insertMetricName, r.addMS, []byte(metricNamesKey), r.d.writer.index.nameColumn(k.Metric), stringIndexValue)
}

// lacksIndex reports whether a row can not be found.
func (r *repair) lacksIndex(ctx context.Context, k rowtime.Key) (bool, error) {
	session := r.d.ks.Session
	if r.legacy {
		key, err := k.Append(nil)
		if err != nil {
			return false, err
		}
		if found, err := session.One(ctx, findLegacyKey, []any{[]byte(k.Metric), key}, nil); err != nil || found {
			return false, err
		}
	}
	if k.Type == rowtime.TypeLegacy {
		return true, nil
	}
	tags := cql.TagMap{Tags: k.Tags}
	if found, err := session.One(ctx, findRowKey, []any{k.Metric, dataPointsTable, k.RowTimeMS, string(k.Type), tags}, nil); err != nil || !found {
		return true, err
	}
	if found, err := session.One(ctx, findRowTime, []any{k.Metric, dataPointsTable, k.RowTimeMS}, nil); err != nil || !found {
		return true, err
	}
	return r.lacksTagRows(ctx, k)
}

// lacksTagRows reports whether varve_row_index claims to hold the row, and does
// not.
func (r *repair) lacksTagRows(ctx context.Context, k rowtime.Key) (bool, error) {
	session := r.d.ks.Session
	if !r.d.ks.Tables.Own {
		return false, nil
	}
	var mtime, kairosMtime *cql.UUID
	if _, err := session.One(ctx, selectFirstRowKey, []any{k.Metric, dataPointsTable, k.RowTimeMS}, nil, &mtime, nil); err != nil {
		return false, err
	}
	if _, err := session.One(ctx, selectRowState, []any{k.Metric, k.RowTimeMS}, &kairosMtime, nil, nil); err != nil {
		return false, err
	}
	if mtime == nil || kairosMtime == nil || *mtime != *kairosMtime {
		return false, nil // not covered: nobody relies on it
	}
	shard := indexShard(k.Tags, r.d.ks.IndexShards)
	for name, value := range k.Tags.All() {
		found, err := session.One(ctx, findTagRow, []any{k.Metric, k.RowTimeMS, name, value, shard, string(k.Type), cql.TagMap{Tags: k.Tags}}, nil)
		if err != nil || !found {
			return true, err
		}
	}
	return false, nil
}

// expiry returns until when the last sample of a row lives, and false if it has
// none any more.
func (r *repair) expiry(ctx context.Context, k rowtime.Key) (sec int64, there bool, err error) {
	key, err := k.Append(nil)
	if err != nil {
		return 0, false, err
	}
	var ttl *int
	if there, err = r.d.ks.Session.One(ctx, readLastTTL, []any{key}, &ttl); err != nil || !there {
		return 0, false, err
	}
	if ttl == nil {
		return forever, true, nil
	}
	return r.d.now().Unix() + int64(*ttl), true, nil
}

// rowKeys walks over row_keys.
func (r *repair) rowKeys(ctx context.Context, from, to int64) error {
	rows := r.d.ks.Session.Query(ctx, scanRowKeys, from, to)
	defer rows.Close()
	var metric string
	var rowTime cql.Millis
	for rows.Scan(&metric, nil, &rowTime) {
		if err := r.rowKeysOf(ctx, metric, rowTime.MS); err != nil {
			return err
		}
	}
	return rows.Close()
}

// rowKeysOf removes the row keys of one row time that have no samples.
func (r *repair) rowKeysOf(ctx context.Context, metric string, rowTimeMS int64) error {
	rows := r.d.ks.Session.Query(ctx, listRowKeys, metric, dataPointsTable, rowTimeMS)
	defer rows.Close()
	var keys []rowDelete
	flush := func() error {
		err := r.dropDead(ctx, metric, rowTimeMS, keys)
		keys = keys[:0]
		return err
	}
	var dataType *string
	var tags cql.TagMap
	for rows.Scan(&dataType, &tags) {
		if dataType == nil || tags.Null {
			continue
		}
		r.report.RowKeys++
		keys = append(keys, rowDelete{series: model.Series{Metric: metric, Tags: tags.Tags, Type: model.Type(*dataType)}})
		if len(keys) == repairChunk {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return errors.Join(rows.Close(), flush())
}

func (r *repair) dropDead(ctx context.Context, metric string, rowTimeMS int64, keys []rowDelete) error {
	if len(keys) == 0 {
		return nil
	}
	if err := r.pace(ctx, len(keys)); err != nil {
		return err
	}
	dead, err := r.without(ctx, metric, rowTimeMS, keys, false)
	if err != nil || len(dead) == 0 {
		return err
	}
	if rowTimeMS > r.keep {
		r.counts.kept.Add(int64(len(dead)))
		return nil
	}
	r.counts.deadRowKeys.Add(int64(len(dead)))
	if r.o.DryRun {
		return nil
	}
	pass := &deletePass{d: r.d, metric: metric, stampMS: r.dropMS, legacy: false, tagIndexed: r.indexed}
	if err := r.d.unindex(ctx, pass, rowTimeMS, dead, false); err != nil {
		return err
	}
	again, err := r.without(ctx, metric, rowTimeMS, dead, true)
	if err != nil || len(again) == 0 {
		return err
	}
	revived := make([]rowtime.Key, len(again))
	for i, k := range again {
		revived[i] = rowtime.Key{Metric: metric, RowTimeMS: rowTimeMS, Type: k.series.Type, Tags: k.series.Tags}
	}
	return r.indexRows(ctx, revived)
}

// without returns those of some rows that have no samples, or those that have.
func (r *repair) without(ctx context.Context, metric string, rowTimeMS int64, keys []rowDelete, samples bool) ([]rowDelete, error) {
	found := make([]bool, len(keys))
	err := parallel(ctx, r.d.cfg.Parallel, len(keys), func(ctx context.Context, i int) error {
		key, err := rowtime.Key{Metric: metric, RowTimeMS: rowTimeMS, Type: keys[i].series.Type, Tags: keys[i].series.Tags}.Append(nil)
		if err != nil {
			return nil // too long: data_points can not have it
		}
		found[i], err = r.d.hasSamples(ctx, key)
		return err
	})
	var some []rowDelete
	for i := range keys {
		if found[i] == samples {
			some = append(some, keys[i])
		}
	}
	return some, err
}

// tagRows walks over varve_row_index.
func (r *repair) tagRows(ctx context.Context, from, to int64) error {
	rows := r.d.ks.Session.Query(ctx, scanTagRows, from, to)
	defer rows.Close()
	var chunk []tagRow
	flush := func() error {
		err := r.dropTagRows(ctx, chunk)
		chunk = chunk[:0]
		return err
	}
	var metric, tag, value, dataType string
	var rowTime cql.Millis
	var shard int
	var tags cql.TagMap
	for rows.Scan(&metric, &rowTime, &tag, &value, &shard, &dataType, &tags) {
		r.report.TagRows++
		chunk = append(chunk, tagRow{metric, rowTime.MS, tag, value, shard, dataType, tags})
		if len(chunk) == repairChunk {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return errors.Join(rows.Close(), flush())
}

// A tagRow is a row of varve_row_index.
type tagRow struct {
	metric     string
	rowTimeMS  int64
	tag, value string
	shard      int
	dataType   string
	tags       cql.TagMap
}

func (t *tagRow) args() []any {
	return []any{t.metric, t.rowTimeMS, t.tag, t.value, t.shard, t.dataType, t.tags}
}

func (r *repair) dropTagRows(ctx context.Context, chunk []tagRow) error {
	if len(chunk) == 0 {
		return nil
	}
	if err := r.pace(ctx, len(chunk)); err != nil {
		return err
	}
	session := r.d.ks.Session
	return parallel(ctx, r.d.cfg.Parallel, len(chunk), func(ctx context.Context, i int) error {
		t := &chunk[i]
		listed := func() (bool, error) {
			return session.One(ctx, findRowKey, []any{t.metric, dataPointsTable, t.rowTimeMS, t.dataType, t.tags}, nil)
		}
		there, err := listed()
		if err != nil {
			return err
		}
		there = there && t.shard == indexShard(t.tags.Tags, r.d.ks.IndexShards)
		if there {
			return nil
		}
		r.counts.deadTagRows.Add(1)
		if r.o.DryRun {
			return nil
		}
		if err := session.Exec(ctx, deleteTagRow, r.dropMS, t.args()...); err != nil {
			return err
		}
		// The row key may have been written meanwhile.
		if there, err = listed(); err != nil || !there {
			return err
		}
		return session.Exec(ctx, insertTagRow, r.addMS, append(t.args(), 0)...)
	})
}

// rowTimes walks over row_key_time_index.
func (r *repair) rowTimes(ctx context.Context, from, to int64) error {
	rows := r.d.ks.Session.Query(ctx, scanRowTimes, from, to)
	defer rows.Close()
	var metric string
	var rowTime cql.Millis
	for rows.Scan(&metric, &rowTime) {
		if rowTime.Null {
			continue
		}
		r.report.RowTimes++
		if err := r.pace(ctx, 1); err != nil {
			return err
		}
		left, err := r.d.hasRowKeys(ctx, metric, rowTime.MS)
		if err != nil {
			return err
		}
		if left || rowTime.MS > r.keep {
			continue
		}
		r.report.DeadRowTimes++
		if r.o.DryRun {
			continue
		}
		pass := &deletePass{d: r.d, metric: metric, stampMS: r.dropMS}
		if err := r.d.settleRowTime(ctx, pass, rowTime.MS); err != nil {
			return err
		}
	}
	return rows.Close()
}

// names walks over the names of metrics.
func (r *repair) names(ctx context.Context) error {
	rows := r.d.ks.Session.Query(ctx, listNames, []byte(metricNamesKey))
	defer rows.Close()
	var raw cql.Raw
	for rows.Scan(&raw) {
		metric := string(raw)
		r.report.Names++
		if err := r.pace(ctx, 1); err != nil {
			return err
		}
		left, err := r.d.ks.Session.One(ctx, probeRowTime, []any{metric, dataPointsTable}, nil)
		if err == nil && !left {
			left, err = r.d.hasLegacyKeys(ctx, metric)
		}
		if err != nil {
			return err
		}
		if left {
			continue
		}
		r.report.DeadNames++
		if r.o.DryRun {
			continue
		}
		if err := r.d.ks.Session.Exec(ctx, deleteMetricName, r.dropMS, []byte(metricNamesKey), r.d.writer.index.nameColumn(metric)); err != nil {
			return err
		}
	}
	return rows.Close()
}
