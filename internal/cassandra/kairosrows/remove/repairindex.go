package remove

import (
	"context"
	"errors"
	"maps"
	"slices"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
	"varve/internal/work"
)

var (
	scanRowKeys = &cql.Statement{Name: "scan_row_keys", Level: cql.Everywhere, Scan: true, PageSize: 1000,
		Text: "SELECT DISTINCT metric, table_name, row_time, token(metric, table_name, row_time) FROM row_keys WHERE token(metric, table_name, row_time) > ? AND token(metric, table_name, row_time) <= ?"}
	scanTagRows = &cql.Statement{Name: "scan_tag_rows", Level: cql.Everywhere, Scan: true,
		Text: "SELECT metric, row_time, tag, value, shard, data_type, tags, token(metric, row_time, tag, value, shard) FROM varve_row_index WHERE token(metric, row_time, tag, value, shard) > ? AND token(metric, row_time, tag, value, shard) <= ?"}
	scanRowTimes = &cql.Statement{Name: "scan_row_times", Level: cql.Everywhere, Scan: true, PageSize: 1000,
		Text: "SELECT metric, row_time, token(metric) FROM row_key_time_index WHERE token(metric) > ? AND token(metric) <= ?"}
	listNames = &cql.Statement{Name: "list_metric_names", Level: cql.Everywhere, PageSize: 1000,
		Text: "SELECT column1 FROM string_index WHERE key = ?"}

	findRowKey = &cql.Statement{Name: "find_row_key", Level: cql.Everywhere, PageSize: 2,
		Text: "SELECT data_type FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND data_type = ? AND tags = ?"}
)

// rowKeys scans row_keys.
func (r *repair) rowKeys(ctx context.Context, from, to int64) error {
	rows := r.d.ks.Session.Query(ctx, scanRowKeys, from, to)
	defer rows.Close()
	var metric string
	var rowTime cql.Millis
	var token int64
	for rows.Scan(&metric, nil, &rowTime, &token) {
		if metric == "" { // the other index tables refuse it: see indexable
			continue
		}
		if err := r.rowKeysOf(ctx, rowkey.Partition{Metric: metric, TimeMS: rowTime.MS}); err != nil {
			return err
		}
		r.reached(token)
	}
	return rows.Close()
}

// rowKeysOf removes the row keys of one row time that have no samples.
func (r *repair) rowKeysOf(ctx context.Context, part rowkey.Partition) error {
	var keys []rowkey.Key
	flush := func() error {
		err := r.dropDead(ctx, part, keys)
		keys = keys[:0]
		r.tell()
		return err
	}
	err := rowkey.Each(ctx, r.d.ks.Session, rowkey.ListRowKeys, part.Args(), func(k rowkey.Key) error {
		r.report.RowKeys++
		if keys = append(keys, k); len(keys) < repairChunk {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}

func (r *repair) dropDead(ctx context.Context, part rowkey.Partition, keys []rowkey.Key) error {
	if len(keys) == 0 {
		return nil
	}
	if err := r.pace(ctx, len(keys)); err != nil {
		return err
	}
	parted := make([]partedKey, len(keys))
	for i, k := range keys {
		parted[i] = partedKey{part, k}
	}
	places, err := r.withoutSamples(ctx, parted)
	if err != nil || len(places) == 0 {
		return err
	}
	if part.TimeMS > r.keep {
		r.report.Kept += int64(len(places))
		return nil
	}
	r.report.DeadRowKeys += int64(len(places))
	if r.o.DryRun {
		return nil
	}
	dead := make([]rowDelete, len(places))
	for i, at := range places {
		dead[i].key = keys[at]
	}
	pass := &deletePass{d: r.d, metric: part.Metric, indexMS: r.dropMS, tagIndexed: r.indexed, pace: steadyPace(r.d.cfg.Parallel), goesOn: func() {}}
	if err := r.d.unindex(ctx, pass, part.TimeMS, dead, false); err != nil {
		return err
	}
	return r.d.settleRowTime(ctx, pass, part.TimeMS)
}

// tagRows scans varve_row_index.
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
	var token int64
	last := from
	for rows.Scan(&metric, &rowTime, &tag, &value, &shard, &dataType, &tags, &token) {
		whole := token != last // chunk ends at the end of a partition
		if len(chunk) >= repairChunk && whole || len(chunk) >= 4*repairChunk {
			if err := flush(); err != nil {
				return err
			}
			if whole {
				r.reached(last)
			} else {
				r.tell()
			}
		}
		last = token
		r.report.TagRows++
		chunk = append(chunk, tagRow{metric, rowTime.MS, tag, value, shard, dataType, tags})
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
	keys := make([]partedKey, len(chunk))
	for i := range chunk {
		t := &chunk[i]
		keys[i] = partedKey{rowkey.Partition{Metric: t.metric, TimeMS: t.rowTimeMS}, rowkey.Key{Type: model.Type(t.dataType), Tags: t.tags.Tags}}
	}
	unlisted, err := r.unlisted(ctx, keys)
	if err != nil {
		return err
	}
	// If the row has samples, the fault is the missing row key, not the tag row.
	orphans, err := r.reallyMissing(ctx, unlisted, func(ctx context.Context, i int) (bool, error) {
		key, err := keys[i].part.DataKey(keys[i].key)
		if err != nil {
			return false, nil // data_points cannot contain such a row
		}
		return rowkey.HasSamples(ctx, r.d.ks.Session, key)
	})
	if err == nil {
		orphans, err = r.lookAgain(ctx, keys, orphans)
	}
	if err != nil {
		return err
	}
	dead := map[int]bool{}
	for _, i := range orphans {
		dead[i] = true
	}
	for i := range chunk {
		t := &chunk[i]
		if t.shard != rowkey.Shard(t.tags.Tags, r.d.ks.IndexShards) {
			dead[i] = true
		}
		if !dead[i] {
			r.known.note(r.known.tagRow(keys[i], rowkey.TagPlace{Tag: t.tag, Value: t.value, Shard: t.shard}))
		}
	}
	r.report.DeadTagRows += int64(len(dead))
	if r.o.DryRun {
		return nil
	}
	gone := slices.Collect(maps.Keys(dead))
	return work.Parallel(ctx, r.d.cfg.Parallel, len(gone), "repair an index", func(ctx context.Context, i int) error {
		return r.d.ks.Session.Exec(ctx, deleteTagRow, r.dropMS, chunk[gone[i]].args()...)
	})
}

// lookAgain returns which of the missing row keys are still missing a moment later. A server
// writes the tag rows of a new series before its row key, so such tag rows are not a fault. The
// repair could not remove them anyway: they are newer than its deletes.
func (r *repair) lookAgain(ctx context.Context, keys []partedKey, places []int) ([]int, error) {
	if len(places) == 0 || r.lookedAgain == secondLooks {
		return places, nil
	}
	r.lookedAgain++
	if err := r.o.pause(ctx, writersMoment); err != nil {
		return nil, err
	}
	return r.reallyMissing(ctx, places, r.hasRowKey(keys))
}

// rowTimes scans row_key_time_index.
func (r *repair) rowTimes(ctx context.Context, from, to int64) error {
	rows := r.d.ks.Session.Query(ctx, scanRowTimes, from, to)
	defer rows.Close()
	var metric string
	var rowTime cql.Millis
	var token int64
	last, kept := from, r.report.RowTimes
	for rows.Scan(&metric, &rowTime, &token) {
		if token != last && r.report.RowTimes-kept >= repairChunk {
			kept = r.report.RowTimes
			r.reached(last)
		}
		last = token
		if rowTime.Null {
			continue
		}
		r.report.RowTimes++
		if err := r.pace(ctx, 1); err != nil {
			return err
		}
		left, err := r.d.hasRowKeys(ctx, rowkey.Partition{Metric: metric, TimeMS: rowTime.MS})
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
		pass := &deletePass{d: r.d, metric: metric, indexMS: r.dropMS, pace: steadyPace(r.d.cfg.Parallel)}
		if err := r.d.settleRowTime(ctx, pass, rowTime.MS); err != nil {
			return err
		}
	}
	return rows.Close()
}

// names scans the names of metrics. They are in one partition, so the token range is ignored.
func (r *repair) names(ctx context.Context, _, _ int64) error {
	r.report.Names = 0 // discard the count of an interrupted scan
	if r.o.DryRun {
		r.report.DeadNames = 0
	}
	rows := r.d.ks.Session.Query(ctx, listNames, []byte(schema.MetricNames))
	defer rows.Close()
	var raw cql.Raw
	for rows.Scan(&raw) {
		metric := string(raw)
		if metric == "" { // see rowKeys
			continue
		}
		if r.report.Names++; r.report.Names%repairChunk == 0 {
			r.tell()
		}
		if err := r.pace(ctx, 1); err != nil {
			return err
		}
		left, err := r.d.ks.Session.One(ctx, probeRowTime, []any{metric, schema.DataPoints}, nil)
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
		if err := r.d.ks.Session.Exec(ctx, deleteMetricName, r.dropMS, []byte(schema.MetricNames), r.d.ks.Tables.NameColumn(metric)); err != nil {
			return err
		}
	}
	return rows.Close()
}
