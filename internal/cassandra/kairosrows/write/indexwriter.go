package write

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/clip"
	"varve/internal/model"
	"varve/internal/work"
)

var (
	insertRowKey = &cql.Statement{Name: "insert_row_key", Level: cql.Quorum, KeyArgs: 3,
		Text: "INSERT INTO row_keys (metric, table_name, row_time, data_type, tags) VALUES (?, ?, ?, ?, ?) USING TTL ?"}
	insertRowKeyMoved = &cql.Statement{Name: "insert_row_key", Level: cql.Quorum, KeyArgs: 3,
		Text: "INSERT INTO row_keys (metric, table_name, row_time, data_type, tags, mtime) VALUES (?, ?, ?, ?, ?, now()) USING TTL ?"}
	insertRowKeysMark = &cql.Statement{Name: "insert_row_keys_mark", Level: cql.Quorum,
		Text: "UPDATE row_keys USING TIMESTAMP 1 AND TTL ? SET mtime = ? WHERE metric = ? AND table_name = ? AND row_time = ?"}
	insertRowTime = &cql.Statement{Name: "insert_row_time", Level: cql.Quorum,
		Text: "INSERT INTO row_key_time_index (metric, table_name, row_time) VALUES (?, ?, ?) USING TTL ?"}
	insertTagIndexedRowKey = &cql.Statement{Name: "insert_tag_indexed_row_key", Level: cql.Quorum, KeyArgs: 4,
		Text: "INSERT INTO tag_indexed_row_keys (metric, table_name, row_time, single_tag_pair, data_type, tag_collection_hash, tags, mtime) VALUES (?, ?, ?, ?, ?, ?, ?, now()) USING TTL ?"}
	claimExpiry = &cql.Statement{Name: "claim_row_expiry", Level: cql.Quorum,
		Text: "UPDATE varve_row_state USING TIMESTAMP ? AND TTL ? SET expires = ? WHERE metric = ? AND row_time = ?"}
	updateRowChanged = &cql.Statement{Name: "update_row_changed", Level: cql.Quorum,
		Text: "UPDATE varve_row_state USING TTL ? SET changed = ? WHERE metric = ? AND row_time = ?"}
	updateRowCovered = &cql.Statement{Name: "update_row_covered", Level: cql.Quorum,
		Text: "UPDATE varve_row_state USING TTL ? SET changed = ?, kairos_mtime = ? WHERE metric = ? AND row_time = ?"}
)

const (
	// indexParallel is how many statements an index write has in flight; the
	// session's own limit may be lower.
	indexParallel = 64

	// endOf2038 is the last second, in Unix time, at which a cell may expire on servers up to
	// 4.1, and on 5.0 in its default configuration.
	endOf2038 = 1<<31 - 2

	// cap2038Life is how long a refusal counts as proof that the server has that limit.
	cap2038Life = time.Hour
)

// A Row is a row to which samples will be written.
type Row struct {
	Series    model.Series
	RowTimeMS int64
	NeedSec   int64 // when the last of the samples expires, Unix seconds, or forever
}

func (r *Row) part() rowkey.Partition {
	return rowkey.Partition{Metric: r.Series.Metric, TimeMS: r.RowTimeMS}
}
func (r *Row) key() rowkey.Key { return rowkey.Key{Type: r.Series.Type, Tags: r.Series.Tags} }

// indexWriter writes the index rows of row keys before their samples are written, unless they
// are known to exist.
//
// # Order
//
// For row keys of one (metric, row time), under one write timestamp s:
//
//	1  varve_row_state      claim: expires, changed at s        of a partition that is not
//	2  look                 row_keys, varve_row_state           known, or must live longer
//	3  varve_row_index      one row per tag, in the partition of (tag, value, shard)
//	4  row_keys, and tag_indexed_row_keys by rule
//	5  row_key_time_index, string_index
//	6  varve_row_state      changed at s' >= s, and kairos_mtime if the partition was
//	                        empty at 2: varve_row_index holds everything
//
// So a row key that is in row_keys is also in varve_row_index, and changed moves once all rows
// can be found. Each write is awaited, at a quorum.
//
// # Expiry
//
// Index rows outlive their samples by the width of a row, so that later samples of the row,
// which expire later, need no new index rows. All index rows of one (metric, row time) are
// written with the longest time-to-live that any Varve node needs there, since Cassandra keeps
// the time-to-live of the last write, even if it is shorter. varve_row_state.expires records
// that longest life. Its write timestamp is the expiry itself, so of two nodes the one with the
// later expiry wins, in whatever order they write.
//
// Suppose that nodes A and B begin a partition at the same time, and that B needs the longer
// life. After step 5, if its rows expire at all, A looks for a longer claim. If A sees B's
// claim, it writes its rows again with that life. If it does not, then B's look (2) comes later
// and finds the timestamp of A's claim, so B writes its rows above that timestamp, and so above
// A's. None of this depends on clocks. Where KairosDB wrote too, TTL(mtime) counts. Without
// varve_row_state the necessary life is unknown, so index rows never expire.
type indexWriter struct {
	ks      *schema.Keyspace
	rules   func() *TagRules
	now     func() time.Time
	metrics *metrics
	known   *known

	keysChanged func(metric string, rowTimeMS int64)

	cap2038 atomic.Int64 // until when index rows are cut off at endOf2038, Unix seconds
}

// fresh returns an index writer that knows of no index rows, so it writes all of them.
func (w *indexWriter) fresh() *indexWriter {
	return &indexWriter{
		ks: w.ks, rules: w.rules, now: w.now,
		metrics: w.metrics, keysChanged: w.keysChanged, known: newKnown(1000),
	}
}

// write writes the index rows of rows that are not known to exist. epoch is the epoch of
// w.known from before the caller checked what is known.
func (w *indexWriter) write(ctx context.Context, epoch uint64, stampMS int64, rows []Row) error {
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Series.Metric, b.Series.Metric), cmp.Compare(a.RowTimeMS, b.RowTimeMS))
	})
	var groups [][]Row
	for from := 0; from < len(rows); {
		to := from + 1
		for to < len(rows) && rows[to].part() == rows[from].part() {
			to++
		}
		groups = append(groups, rows[from:to])
		from = to
	}
	return work.Parallel(ctx, indexParallel, len(groups), "write index rows", func(ctx context.Context, i int) error {
		_, err := w.writeRows(ctx, epoch, stampMS, groups[i], false)
		return err
	})
}

// learn2038 records that the server refused an expiry after January 2038.
func (w *indexWriter) learn2038() { w.cap2038.Store(w.now().Add(cap2038Life).Unix()) }

// limited2038 reports whether the server is known to refuse expiries after
// January 2038.
func (w *indexWriter) limited2038() bool { return w.now().Unix() < w.cap2038.Load() }

// An indexPart is a partition of row_keys, (metric, row time), whose index rows are being
// written.
type indexPart struct {
	rowkey.Partition
	known     bool  // its row time, metric name, mark and claim exist
	expirySec int64 // until when its index rows must live, as far as is known; Unix seconds
	empty     bool  // it had no row keys, so varve_row_index will have all of them
	stampMS   int64 // write timestamp of its rows
	apart     bool  // each statement batch has one partition only
}

// maxClaims bounds how often a partition is claimed, or its rows are written again, because
// other nodes claim it at the same time.
const maxClaims = 10

var errClaims = errors.New("other nodes began the same row time too often")

// writeRows writes the index rows of row keys of one metric and row time. If it returns an
// error, unwritten has the positions in rows of those that are not written; the others are.
// With apart, each batch has one partition only, so that a partition that fails does not affect
// others.
func (w *indexWriter) writeRows(ctx context.Context, epoch uint64, stampMS int64, rows []Row, apart bool) (unwritten []int, err error) {
	limited := w.limited2038()
	unwritten, err = w.writePartition(ctx, epoch, stampMS, rows, apart)
	if refused := refusalOf(err); refused == nil || refused.Reason != cql.TTLTooLong || limited {
		return unwritten, err
	}
	w.learn2038()
	return w.writePartition(ctx, epoch, stampMS, rows, apart)
}

// writePartition is writeRows without a second attempt for servers with the limit of 2038.
func (w *indexWriter) writePartition(ctx context.Context, epoch uint64, stampMS int64, rows []Row, apart bool) (unwritten []int, err error) {
	p := indexPart{Partition: rows[0].part(), apart: apart}
	for i := range rows {
		p.expirySec = max(p.expirySec, w.indexExpiry(rows[i].NeedSec))
	}
	if !w.ks.Tables.Own {
		p.expirySec = rowkey.Forever // without varve_row_state it is unknown how long rows of other nodes must live
	}
	none := allPositions(rows)
	expirySec, changedMS, known := w.known.part(p.Partition)
	p.stampMS = max(stampMS, changedMS+1)
	if p.known = known && p.expirySec <= expirySec; p.known {
		p.expirySec = expirySec
	} else if err := w.claim(ctx, &p); err != nil {
		return none, err
	}
	for range maxClaims {
		lost, err := w.insert(ctx, &p, rows)
		if err != nil {
			return none, err
		}
		longer, err := w.claimedLonger(ctx, &p)
		if err != nil {
			return none, err
		}
		if longer {
			continue
		}
		if changedMS, err = w.moveChanged(ctx, p.Partition, p.stampMS, w.ttl(p.expirySec), p.empty); err != nil {
			return none, err
		}
		w.known.put(epoch, p.Partition, p.expirySec, changedMS, lost.rest(rows))
		return lost.positions(rows), lost.err
	}
	return none, fmt.Errorf("write index rows of metric %s, row time %d: %w", clip.Text(p.Metric, maxShown), p.TimeMS, errClaims)
}

func allPositions(rows []Row) []int {
	all := make([]int, len(rows))
	for i := range all {
		all[i] = i
	}
	return all
}

// claim stores how long index rows of a partition must live, and reads what other nodes have
// stored. It sets in p the longest life that any node needs, and a write timestamp above those
// of all earlier claims.
func (w *indexWriter) claim(ctx context.Context, p *indexPart) error {
	for range maxClaims {
		mine, err := w.writeClaim(ctx, p)
		if err != nil {
			return err
		}
		there, err := w.look(ctx, p)
		if err != nil {
			return err
		}
		shorter := p.expirySec < there.ExpirySec
		p.expirySec = max(p.expirySec, there.ExpirySec)
		if !w.ks.Tables.Own || there.Changed == mine && !shorter {
			return nil
		}
		p.stampMS = max(p.stampMS, there.ChangedMS+1)
	}
	return fmt.Errorf("claim row time %d of metric %s: %w", p.TimeMS, clip.Text(p.Metric, maxShown), errClaims)
}

// maxShown is how much of a metric's name an error contains.
const maxShown = 100

// writeClaim writes the claim, and returns the value that it set changed to.
func (w *indexWriter) writeClaim(ctx context.Context, p *indexPart) (mine cql.UUID, err error) {
	if !w.ks.Tables.Own {
		return mine, nil
	}
	mine = cql.TimeUUID()
	ttl := w.ttl(p.expirySec)
	return mine, w.ks.Session.Batch(ctx, p.stampMS, []cql.Entry{
		{Statement: claimExpiry, Args: []any{expiryStamp(p.expirySec), ttl, rowkey.ExpiresColumn(p.expirySec), p.Metric, p.TimeMS}},
		{Statement: updateRowChanged, Args: []any{ttl, mine, p.Metric, p.TimeMS}},
	})
}

// claimedLonger reports whether another node has claimed a longer life meanwhile. If so, it
// claims that life too.
func (w *indexWriter) claimedLonger(ctx context.Context, p *indexPart) (bool, error) {
	if !w.ks.Tables.Own || p.expirySec == rowkey.Forever {
		return false, nil
	}
	there, err := rowkey.ReadState(ctx, w.ks, p.Partition)
	if err != nil || there.ExpirySec <= p.expirySec {
		return false, err
	}
	empty := p.empty // what exists now includes this node's own rows
	p.known, p.expirySec = false, there.ExpirySec
	err = w.claim(ctx, p)
	p.empty = empty
	return true, err
}

// expiryStamp is the write timestamp of varve_row_state.expires: the later expiry wins.
func expiryStamp(expirySec int64) int64 { return min(expirySec, endOf9999) * 1000 }

// endOf9999 stands for an expiry that never comes, in Unix seconds.
const endOf9999 = 253_402_300_799

// insert writes the rows of all tables, in order. A row key for which a row cannot be written
// is lost, and not written to the tables that follow. An error means that all row keys are
// lost.
func (w *indexWriter) insert(ctx context.Context, p *indexPart, rows []Row) (*lostRows, error) {
	ttl := w.ttl(p.expirySec)
	lost := &lostRows{keys: map[rowkey.Key]bool{}}
	if err := w.sendAll(ctx, p, w.tagRows(p, rows, ttl), lost); err != nil {
		return lost, err
	}
	rows = lost.rest(rows)
	if len(rows) == 0 {
		return lost, lost.err
	}
	if err := w.sendAll(ctx, p, append(w.rowKeys(p, rows, ttl), w.tagIndexed(rows, ttl)...), lost); err != nil {
		return lost, err
	}
	if p.known {
		return lost, nil
	}
	if err := w.ks.Session.Exec(ctx, insertRowTime, p.stampMS, p.Metric, schema.DataPoints, p.TimeMS, ttl); err != nil {
		return lost, err
	}
	return lost, rowkey.AddName(ctx, w.ks, p.stampMS, p.Metric)
}

// look finds out whether a partition is empty, and how long its rows live. If there are so many
// deleted row keys that the first live one cannot be found, the partition counts as not empty.
func (w *indexWriter) look(ctx context.Context, p *indexPart) (rowkey.State, error) {
	s, err := rowkey.ReadState(ctx, w.ks, p.Partition)
	if err != nil {
		return s, err
	}
	f, err := rowkey.ReadFirst(ctx, w.ks.Session, p.Partition)
	if err != nil {
		return s, err
	}
	if f.Hidden {
		p.empty = false
		return s, nil
	}
	foreign := f.Mtime != nil && *f.Mtime != schema.WroteHere
	p.empty = !f.Any && !foreign && s.KairosMtime == (cql.UUID{})
	switch {
	case foreign && f.MtimeTTL != nil:
		s.ExpirySec = max(s.ExpirySec, w.now().Unix()+int64(*f.MtimeTTL))
	case foreign:
		s.ExpirySec = rowkey.Forever
	}
	return s, nil
}

// moveChanged tells other nodes that row keys of a row time were added or removed, which
// invalidates what they have cached. covered says that the partition was empty, so that
// varve_row_index has all of its row keys. The write timestamp is the present time, and above
// lastMS, the previous one.
func (w *indexWriter) moveChanged(ctx context.Context, p rowkey.Partition, lastMS int64, ttl int, covered bool) (movedMS int64, err error) {
	defer w.keysChanged(p.Metric, p.TimeMS)
	at := max(w.now().UnixMilli(), lastMS+1)
	switch {
	case !w.ks.Tables.Own:
		return at, nil
	case covered:
		return at, w.ks.Session.Exec(ctx, updateRowCovered, at, ttl, cql.TimeUUID(), schema.WroteHere, p.Metric, p.TimeMS)
	}
	return at, w.ks.Session.Exec(ctx, updateRowChanged, at, ttl, cql.TimeUUID(), p.Metric, p.TimeMS)
}

// indexExpiry returns until when index rows must live for samples that live until needSec.
func (w *indexWriter) indexExpiry(needSec int64) int64 {
	if needSec == rowkey.Forever {
		return rowkey.Forever
	}
	return needSec + w.ks.Spec.WidthMS()/1000
}

// neededFor is the inverse of indexExpiry: until when samples live whose index rows have this
// expiry.
func (w *indexWriter) neededFor(expirySec int64) int64 {
	if expirySec == rowkey.Forever {
		return rowkey.Forever
	}
	return expirySec - w.ks.Spec.WidthMS()/1000
}

// ttl turns an expiry of index rows into seconds from now, at most what Cassandra accepts.
// Samples that need a longer life are refused themselves.
func (w *indexWriter) ttl(expirySec int64) int {
	if expirySec == rowkey.Forever {
		return 0
	}
	now := w.now().Unix()
	if w.limited2038() {
		expirySec = min(expirySec, endOf2038-60) // the server's clock may be ahead
	}
	return int(max(1, min(expirySec-now, model.MaxTTL)))
}
