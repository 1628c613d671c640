package kairosrows

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/model"
	"varve/internal/rowtime"
)

var stringIndexValue = []byte{0}

var (
	insertRowKey = &cql.Statement{Name: "insert_row_key", KeyArgs: 3,
		Text: "INSERT INTO row_keys (metric, table_name, row_time, data_type, tags) VALUES (?, ?, ?, ?, ?) USING TTL ?"}
	insertRowKeysMark = &cql.Statement{Name: "insert_row_keys_mark",
		Text: "UPDATE row_keys USING TIMESTAMP 1 SET mtime = ? WHERE metric = ? AND table_name = ? AND row_time = ?"}
	insertRowTime = &cql.Statement{Name: "insert_row_time",
		Text: "INSERT INTO row_key_time_index (metric, table_name, row_time) VALUES (?, ?, ?) USING TTL ?"}
	insertMetricName = &cql.Statement{Name: "insert_metric_name",
		Text: "INSERT INTO string_index (key, column1, value) VALUES (?, ?, ?) USING TTL 0"}
	insertTagIndexedRowKey = &cql.Statement{Name: "insert_tag_indexed_row_key", KeyArgs: 4,
		Text: "INSERT INTO tag_indexed_row_keys (metric, table_name, row_time, single_tag_pair, data_type, tag_collection_hash, tags, mtime) VALUES (?, ?, ?, ?, ?, ?, ?, now()) USING TTL ?"}
	insertTagRow = &cql.Statement{Name: "insert_tag_row", KeyArgs: 5,
		Text: "INSERT INTO varve_row_index (metric, row_time, tag, value, shard, data_type, tags) VALUES (?, ?, ?, ?, ?, ?, ?) USING TTL ?"}
	insertRowState = &cql.Statement{Name: "insert_row_state",
		Text: "INSERT INTO varve_row_state (metric, row_time, kairos_mtime, expires) VALUES (?, ?, ?, ?) USING TTL ?"}
	updateRowExpiry = &cql.Statement{Name: "update_row_expiry",
		Text: "INSERT INTO varve_row_state (metric, row_time, expires) VALUES (?, ?, ?) USING TTL ?"}
	updateRowChanged = &cql.Statement{Name: "update_row_changed",
		Text: "INSERT INTO varve_row_state (metric, row_time, changed) VALUES (?, ?, now()) USING TTL ?"}

	selectFirstRowKey = &cql.Statement{Name: "select_first_row_key", PageSize: 2,
		Text: "SELECT data_type, mtime, TTL(mtime) FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? LIMIT 1"}
	selectRowState = &cql.Statement{Name: "select_row_state", PageSize: 2,
		Text: "SELECT kairos_mtime, writetime(changed), expires FROM varve_row_state WHERE metric = ? AND row_time = ?"}
)

const (
	// indexParallel is how many statements an index write has in flight; the
	// session's own limit may be lower.
	indexParallel = 64

	// endOf2038 is the last second, in Unix time, at which a cell may expire on
	// servers up to 4.1, and on 5.0 as it comes.
	endOf2038 = 1<<31 - 2

	// cap2038Life is how long it is believed that a server has that limit.
	cap2038Life = time.Hour
)

// A pendingRow is a row that samples are about to be written to.
type pendingRow struct {
	series    model.Series
	rowTimeMS int64
	needSec   int64 // when the last of the samples expires, Unix seconds, or forever
	id        rowID
}

// indexWriter writes the index rows of row keys before their samples are
// written: once for each life of an entry in its caches.
//
// # Order
//
// For new row keys of one (metric, row time):
//
//	1  varve_row_state      if the partition of row_keys was empty: covered
//	2  varve_row_index      one row per tag, in the partition of (tag, value, shard)
//	3  row_keys, and tag_indexed_row_keys by rule
//	4  row_key_time_index, string_index
//	5  varve_row_state      changed = now()
//
// so whoever finds a row key in row_keys finds it in varve_row_index, and
// changed moves when all can be found. Every write is awaited.
//
// Rows of entries that have become old (index_refresh) are written again without
// moving changed, unless another node has moved it since: that may have been a
// delete of these very rows, and whoever has read the index since has to look
// again.
//
// # Expiry
//
// Index rows outlive their samples by the width of a row, so that the later
// samples of a row, which expire later, need no new ones. Cassandra keeps the
// TTL of the last write, even a shorter one, so all index rows of one (metric,
// row time) are written with the longest that any Varve node wrote there:
// varve_row_state.expires has it. Where KairosDB wrote too, TTL(mtime) counts.
type indexWriter struct {
	session *cql.Session
	spec    rowtime.Spec
	tables  Tables
	shards  int // of varve_row_index
	refresh time.Duration
	rules   func() *TagRules
	now     func() time.Time
	metrics *writeMetrics

	keysChanged func(metric string, rowTimeMS int64)

	seeds      [2]maphash.Seed
	rows       *indexCache[indexed]
	partitions *indexCache[indexedPart]

	mu       sync.Mutex
	cap2038  time.Time // until when index rows are cut off at endOf2038
	lastMove int64     // highest write timestamp of changed, ms
}

// apart returns an index writer that believes nothing to be written.
func (w *indexWriter) apart() *indexWriter {
	return &indexWriter{
		session: w.session, spec: w.spec, tables: w.tables, shards: w.shards, refresh: w.refresh, rules: w.rules, now: w.now,
		metrics: w.metrics, keysChanged: w.keysChanged, seeds: w.seeds,
		rows: newIndexCache[indexed](1000), partitions: newIndexCache[indexedPart](1000),
	}
}

// indexShard returns the shard of varve_row_index that has a series' rows.
func indexShard(tags model.Tags, shards int) int {
	h := fnv.New32a()
	for name, value := range tags.All() {
		h.Write([]byte(name))
		h.Write([]byte{0})
		h.Write([]byte(value))
		h.Write([]byte{0})
	}
	return int(h.Sum32() % uint32(shards))
}

// fresh reports whether nothing has to be written for a row.
func (w *indexWriter) fresh(r *pendingRow) bool {
	e, ok := w.rows.get(r.id)
	return ok && w.holds(e, r)
}

func (w *indexWriter) holds(e indexed, r *pendingRow) bool {
	return e.expirySec >= r.needSec && !w.old(e, r.id)
}

// old: the entry has lived as long as it may. Lives differ by up to a quarter,
// so that what was written at once is not written again at once.
func (w *indexWriter) old(e indexed, id rowID) bool {
	return e.age(w.now()) >= w.refresh-w.refresh/4/1024*time.Duration(id[1]%1024)
}

// write writes the index rows of rows for which fresh says no. epoch is that of
// the caches before any of them was asked.
func (w *indexWriter) write(ctx context.Context, epoch uint64, stampMS int64, rows []pendingRow) error {
	slices.SortFunc(rows, func(a, b pendingRow) int {
		return cmp.Or(cmp.Compare(a.series.Metric, b.series.Metric), cmp.Compare(a.rowTimeMS, b.rowTimeMS))
	})
	var groups [][]pendingRow
	for from := 0; from < len(rows); {
		to := from + 1
		for to < len(rows) && rows[to].series.Metric == rows[from].series.Metric && rows[to].rowTimeMS == rows[from].rowTimeMS {
			to++
		}
		groups = append(groups, rows[from:to])
		from = to
	}
	return parallel(ctx, indexParallel, len(groups), func(ctx context.Context, i int) error {
		for {
			err := w.writePartition(ctx, epoch, stampMS, groups[i])
			var refused *cql.RefusedError
			if !errors.As(err, &refused) || refused.Reason != cql.TTLTooLong || !w.learn2038() {
				return err
			}
		}
	})
}

// learn2038 notes that the server refused an expiry after January 2038. It
// reports false if that was known.
func (w *indexWriter) learn2038() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	known := now.Before(w.cap2038)
	w.cap2038 = now.Add(cap2038Life)
	return !known
}

// limited2038 reports whether the server is known to refuse expiries after
// January 2038.
func (w *indexWriter) limited2038() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now().Before(w.cap2038)
}

// An indexPart is one (metric, row time) that index rows are written to.
type indexPart struct {
	metric    string
	rowTimeMS int64
	known     bool  // row_key_time_index, string_index and the mark were written
	expirySec int64 // the longest of its index rows so far, 0 if there are none
	covered   bool  // was empty: varve_row_index will hold everything
	changedMS int64 // write timestamp of changed, 0 if never
}

// writePartition writes the index rows of row keys of one metric and row time.
func (w *indexWriter) writePartition(ctx context.Context, epoch uint64, stampMS int64, rows []pendingRow) error {
	p := indexPart{metric: rows[0].series.Metric, rowTimeMS: rows[0].rowTimeMS}
	ids := idHash{seeds: w.seeds}
	id := ids.partition(p.metric, p.rowTimeMS)
	before, moved, err := w.recall(ctx, &p, id)
	if err != nil {
		return err
	}
	isNew, expiry := moved, p.expirySec
	for i := range rows {
		expiry = max(expiry, w.indexExpiry(rows[i].needSec))
		e, ok := w.rows.get(rows[i].id)
		isNew = isNew || !ok || e.expirySec <= w.now().Unix() || e.atSec <= before.foreign
	}
	grown := expiry > p.expirySec
	if err := w.insert(ctx, stampMS, &p, rows, expiry); err != nil {
		return err
	}
	if isNew {
		if p.changedMS, err = w.moveChanged(ctx, p.metric, p.rowTimeMS, p.changedMS, w.ttl(expiry)); err != nil {
			return err
		}
	}
	written := indexed{expirySec: expiry, atSec: w.now().Unix()}
	part := indexedPart{indexed: written, changedMS: p.changedMS, foreign: before.foreign}
	if p.known && !grown {
		part.indexed = before.indexed
	}
	w.partitions.put(epoch, id, part)
	for i := range rows {
		w.rows.put(epoch, rows[i].id, written)
	}
	return nil
}

// recall fills p with what is known of a partition, or with what it finds out.
// moved says that another node has added row keys since, or has deleted some of
// those that are known here; these are as good as new when they are written
// again.
func (w *indexWriter) recall(ctx context.Context, p *indexPart, id rowID) (before indexedPart, moved bool, err error) {
	before, seen := w.partitions.get(id)
	if seen {
		p.known, p.expirySec, p.changedMS = !w.old(before.indexed, id), before.expirySec, before.changedMS
	}
	if p.known {
		return before, false, nil
	}
	if err := w.look(ctx, p); err != nil {
		return before, false, err
	}
	if moved = seen && p.changedMS != before.changedMS; moved {
		before.foreign = w.now().Unix()
	}
	return before, moved, nil
}

// insert writes the rows of all tables, in order, to live until expirySec.
func (w *indexWriter) insert(ctx context.Context, stampMS int64, p *indexPart, rows []pendingRow, expirySec int64) error {
	ttl, grown := w.ttl(expirySec), expirySec > p.expirySec
	if w.tables.Own && (p.covered || grown) {
		st, args := updateRowExpiry, []any{p.metric, p.rowTimeMS, expiresColumn(expirySec), ttl}
		if p.covered {
			st, args = insertRowState, []any{p.metric, p.rowTimeMS, WroteHere, expiresColumn(expirySec), ttl}
		}
		if err := w.session.Exec(ctx, st, stampMS, args...); err != nil {
			return err
		}
	}
	if err := w.sendAll(ctx, stampMS, w.tagRows(p, rows, ttl)); err != nil {
		return err
	}
	if err := w.sendAll(ctx, stampMS, append(w.rowKeys(p, rows, ttl), w.tagIndexed(rows, ttl)...)); err != nil {
		return err
	}
	if !p.known || grown {
		if err := w.session.Exec(ctx, insertRowTime, stampMS, p.metric, dataPointsTable, p.rowTimeMS, ttl); err != nil {
			return err
		}
	}
	if p.known {
		return nil
	}
	return w.session.Exec(ctx, insertMetricName, stampMS, []byte(metricNamesKey), w.nameColumn(p.metric), stringIndexValue)
}

// look finds out about a partition that is not known: whether it is empty, and
// how long what is there lives.
func (w *indexWriter) look(ctx context.Context, p *indexPart) error {
	var dataType *string
	var mtime *cql.UUID
	var mtimeTTL *int
	there, err := w.session.One(ctx, selectFirstRowKey, []any{p.metric, dataPointsTable, p.rowTimeMS}, &dataType, &mtime, &mtimeTTL)
	if err != nil {
		return err
	}
	var kairosMtime *cql.UUID
	var changedMS, expires *int64
	if !w.tables.Own {
	} else if _, err := w.session.One(ctx, selectRowState, []any{p.metric, p.rowTimeMS}, &kairosMtime, &changedMS, &expires); err != nil {
		return err
	}
	foreign := mtime != nil && *mtime != WroteHere
	p.covered = (!there || dataType == nil) && !foreign && kairosMtime == nil
	if changedMS != nil {
		p.changedMS = *changedMS
	}
	if expires != nil {
		p.expirySec = max(p.expirySec, expiryOf(*expires))
	}
	switch {
	case foreign && mtimeTTL != nil:
		p.expirySec = max(p.expirySec, w.now().Unix()+int64(*mtimeTTL))
	case foreign:
		p.expirySec = forever
	}
	return nil
}

// moveChanged tells other nodes that row keys of a row time came or went. It is
// written with the time of now, and above lastMS, the write timestamp of the
// one before, as far as known: stampMS may be of long ago, and would lose.
func (w *indexWriter) moveChanged(ctx context.Context, metric string, rowTimeMS, lastMS int64, ttl int) (movedMS int64, err error) {
	defer w.keysChanged(metric, rowTimeMS)
	if !w.tables.Own {
		return 0, nil
	}
	w.mu.Lock()
	at := max(w.now().UnixMilli(), lastMS+1, w.lastMove)
	w.lastMove = at
	w.mu.Unlock()
	return at, w.session.Exec(ctx, updateRowChanged, at, metric, rowTimeMS, ttl)
}

// nameColumn is a metric name as string_index has it.
func (w *indexWriter) nameColumn(metric string) any {
	if w.tables.StringIndexBlob {
		return []byte(metric)
	}
	return metric
}

// expiresColumn is varve_row_state.expires: Unix seconds, 0 for never.
func expiresColumn(expirySec int64) int64 {
	if expirySec == forever {
		return 0
	}
	return expirySec
}

func expiryOf(column int64) int64 {
	if column == 0 {
		return forever
	}
	return column
}

// indexExpiry returns until when index rows have to live for samples that live
// until needSec.
func (w *indexWriter) indexExpiry(needSec int64) int64 {
	if needSec == forever {
		return forever
	}
	return needSec + w.spec.WidthMS()/1000
}

// ttl turns an expiry of index rows into seconds from now, as long as Cassandra
// takes it. Samples that need longer ones are refused themselves.
func (w *indexWriter) ttl(expirySec int64) int {
	if expirySec == forever {
		return 0
	}
	now := w.now().Unix()
	if w.limited2038() {
		expirySec = min(expirySec, endOf2038-60) // the server's clock may be ahead
	}
	return int(max(1, min(expirySec-now, model.MaxTTL)))
}
