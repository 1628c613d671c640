package remove

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/rowtime"
	"varve/internal/store"
	"varve/internal/work"
)

var (
	deleteRow = &cql.Statement{Name: "delete_row", KeyArgs: 1,
		Text: "DELETE FROM data_points WHERE key = ?"}
	deleteSlice = &cql.Statement{Name: "delete_slice", KeyArgs: 1,
		Text: "DELETE FROM data_points WHERE key = ? AND column1 >= ? AND column1 <= ?"}

	deleteRowKey = &cql.Statement{Name: "delete_row_key", Level: cql.Quorum, KeyArgs: 3,
		Text: "DELETE FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND data_type = ? AND tags = ?"}
	// This keeps the static mtime, which is written with timestamp 1: after a delete of the
	// whole partition it could not be written again.
	deleteRowKeys = &cql.Statement{Name: "delete_row_keys", Level: cql.Quorum, KeyArgs: 3,
		Text: "DELETE FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND data_type >= ''"}
	deleteTagRow = &cql.Statement{Name: "delete_tag_row", Level: cql.Quorum, KeyArgs: 5,
		Text: "DELETE FROM varve_row_index WHERE metric = ? AND row_time = ? AND tag = ? AND value = ? AND shard = ? AND data_type = ? AND tags = ?"}
	deleteTagRows = &cql.Statement{Name: "delete_tag_rows", Level: cql.Quorum, KeyArgs: 5,
		Text: "DELETE FROM varve_row_index WHERE metric = ? AND row_time = ? AND tag = ? AND value = ? AND shard = ?"}
	deleteTagIndexed = &cql.Statement{Name: "delete_tag_indexed_row_key", Level: cql.Quorum, KeyArgs: 4,
		Text: "DELETE FROM tag_indexed_row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND single_tag_pair = ? AND data_type = ? AND tag_collection_hash = ? AND tags = ?"}
	deleteLegacyKey = &cql.Statement{Name: "delete_legacy_key", Level: cql.Quorum, KeyArgs: 1,
		Text: "DELETE FROM row_key_index WHERE key = ? AND column1 = ?"}
	deleteRowTime = &cql.Statement{Name: "delete_row_time", Level: cql.Quorum,
		Text: "DELETE FROM row_key_time_index WHERE metric = ? AND table_name = ? AND row_time = ?"}
	deleteRowState = &cql.Statement{Name: "delete_row_state", Level: cql.Quorum,
		Text: "DELETE FROM varve_row_state WHERE metric = ? AND row_time = ?"}
	deleteMetricName = &cql.Statement{Name: "delete_metric_name", Level: cql.Quorum,
		Text: "DELETE FROM string_index WHERE key = ? AND column1 = ?"}

	probeLegacyKeys = &cql.Statement{Name: "probe_legacy_keys", Level: cql.Everywhere, PageSize: 2,
		Text: "SELECT column1 FROM row_key_index WHERE key = ? LIMIT 1"}
	probeRowTime = &cql.Statement{Name: "probe_row_time", Level: cql.Everywhere, PageSize: 2,
		Text: "SELECT row_time FROM row_key_time_index WHERE metric = ? AND table_name = ? LIMIT 1"}
	probeName = &cql.Statement{Name: "probe_metric_name", Level: cql.Everywhere, PageSize: 2,
		Text: "SELECT column1 FROM string_index WHERE key = ? AND column1 = ?"}
	probeTagIndexed = &cql.Statement{Name: "probe_tag_indexed", Level: cql.Everywhere, PageSize: 2, Scan: true,
		Text: "SELECT metric FROM tag_indexed_row_keys LIMIT 1"}
)

const (
	// deleteStep is how many rows of one row time are deleted at a time.
	deleteStep = 500

	// busyFor is how long after samples were written others are assumed to follow.
	busyFor = 5 * time.Second

	// unindexTime bounds the removal of index rows after the client has gone.
	unindexTime = 10 * time.Second

	// cancelTime bounds each of the two steps by which a cancelled delete removes the index rows of
	// what it has emptied: those of the rows, of cancelPiece rows at a time, and the row time.
	cancelTime  = time.Second
	cancelPiece = 500
)

// run executes the steps. It calls progress with the current row time and the number of its
// rows done since the last call. An error, also one of progress, ends the run and leaves the
// index consistent: every row with samples is in it. Rows without samples may be left in it, and
// a repeated delete finds these.
//
// Once cancelled has ended, run ends with errCancelled after the round in progress, and after it has
// removed index rows of the rows that it has emptied for twice cancelTime at most.
//
// If progress is nil, nobody continues the delete when ctx ends, until the client repeats it. So
// run then removes the index rows of the rows that it has emptied, and a repeated delete has
// fewer rows left.
func (d *Deleter) run(ctx context.Context, del store.Deletion, stampMS int64, pace pace, cancelled context.Context, steps []rowTimeDelete, progress func(rowTimeMS int64, rows int) error) error {
	pass := deletePass{d: d, del: del, metric: del.Metric, stampMS: stampMS, all: wholeMetric(del), pace: pace, cancelled: cancelled, hurried: cancelled, repeats: progress == nil}
	if progress == nil {
		pass.hurried = ctx
		progress = func(int64, int) error { return nil }
	}
	if len(steps) == 0 {
		return pass.unusedName(ctx)
	}
	var err error
	pass.indexMS, err = d.writer.Announce(ctx, rowkey.Span{Metric: del.Metric, LowMS: steps[0].rowTimeMS, HighMS: steps[len(steps)-1].rowTimeMS})
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
		done := func(rows int) error { return progress(s.rowTimeMS, rows) }
		pass.goesOn = func() { _ = done(0) } // it returns the same error again after the next rows
		if err := pass.rowTime(ctx, s, done); err != nil {
			return err
		}
	}
	if pass.emptied && pass.keepFrom == math.MaxInt64 { // otherwise keep the name, which a KairosDB node would not write again
		return pass.name(ctx)
	}
	return nil
}

func (d *Deleter) hasLegacyKeys(ctx context.Context, metric string) (bool, error) {
	if !d.ks.Tables.RowKeyIndex {
		return false, nil
	}
	return rowkey.MayHold(ctx, d.ks.Session, probeLegacyKeys, []byte(metric))
}

func (d *Deleter) hasTagIndexed(ctx context.Context) (bool, error) {
	if !d.ks.Tables.TagIndexedRowKeys {
		return false, nil
	}
	return rowkey.MayHold(ctx, d.ks.Session, probeTagIndexed)
}

// A deletePass is one running delete.
type deletePass struct {
	d          *Deleter
	del        store.Deletion // selects the rows that are not listed in a step
	metric     string
	stampMS    int64 // write timestamp of the deletes of samples
	indexMS    int64 // write timestamp of the deletes of index rows: that of the announcement
	keepFrom   int64 // index rows from this row time on are kept
	all        bool  // every series of the metric is deleted
	legacy     bool  // row_key_index has keys of the metric
	tagIndexed bool  // tag_indexed_row_keys has rows

	pace      pace
	turns     turns
	cancelled context.Context // ends when the delete must stop
	hurried   context.Context // ends when the delete must no longer rest: cancelled, or the client's context if only the client continues it
	goesOn    func()          // reports that no more rows are done, but that the delete goes on

	repeats bool // only the client continues this delete, by repeating it
	emptied bool // a row time has lost its last row key
}

// rowTime executes the delete for one row time, portion by portion. If done returns an error,
// it first removes the index rows of rows that it has emptied, and then stops. If the delete is
// cancelled, it leaves some of them if there are many.
func (p *deletePass) rowTime(ctx context.Context, s rowTimeDelete, done func(rows int) error) error {
	if len(s.rows) > 0 || !s.read {
		if err := p.portion(ctx, s.rowTimeMS, s.rows, p.all && !s.read, done); err != nil {
			return err
		}
	}
	if !s.read {
		return nil
	}
	return p.d.eachMatch(ctx, s.rowTimeMS, []store.Deletion{p.del}, p.d.portion, func(_ int, rows []rowDelete) error {
		if len(rows) == 0 && !p.all {
			return nil
		}
		return p.portion(ctx, s.rowTimeMS, rows, false, done)
	})
}

// portion deletes rows of one row time. all says that the row time may have no other rows.
func (p *deletePass) portion(ctx context.Context, rowTimeMS int64, rows []rowDelete, all bool, done func(rows int) error) error {
	keep := rowTimeMS > p.keepFrom
	empty, stop, err := p.rows(ctx, rowTimeMS, rows, !keep, done)
	if err != nil {
		return err
	}
	if p.repeats {
		var stop func()
		ctx, stop = work.Linger(ctx, unindexTime)
		defer stop()
	}
	if p.hurried.Err() != nil {
		p.pace.share(false)
	}
	if keep {
		p.d.metrics.kept.Add(float64(len(rows)))
		return stop
	}
	if len(empty) == 0 && len(rows) > 0 {
		return stop
	}
	cut, err := p.cancellable(ctx, func(ctx context.Context) error {
		return p.unindexPieces(ctx, rowTimeMS, empty, all && len(empty) == len(rows), stop == errCancelled)
	})
	if err != nil {
		return err
	}
	settlingCut, err := p.cancellable(ctx, func(ctx context.Context) error { return p.d.settleRowTime(ctx, p, rowTimeMS) })
	if err != nil {
		return err
	}
	if cut || settlingCut { // the latter also for the last row time, which may still be listed
		stop = cmp.Or(stop, errCancelled)
		p.d.log.Info("a cancelled delete leaves index rows of rows without samples; the same delete, or varve repair, removes them", "metric", p.metric)
	}
	return stop
}

// unindexPieces removes index rows of the rows of a row time that have been emptied. all says that
// the row time may have no others. If the delete is cancelled, it works in pieces, so that if it is
// interrupted only the rows of one piece have a part of their index rows.
func (p *deletePass) unindexPieces(ctx context.Context, rowTimeMS int64, empty []rowDelete, all, cancelled bool) (err error) {
	whole := false
	if all && len(empty) > 0 {
		// Others may have been added since the row keys were read.
		if whole, err = p.d.areAll(ctx, rowkey.Partition{Metric: p.metric, TimeMS: rowTimeMS}, empty); err != nil {
			return err
		}
	}
	if whole || !cancelled {
		return p.d.unindex(ctx, p, rowTimeMS, empty, whole)
	}
	for rows := range slices.Chunk(empty, cancelPiece) {
		if err := p.d.unindex(ctx, p, rowTimeMS, rows, false); err != nil {
			return err
		}
	}
	return nil
}

// cancellable calls f with a context that ends cancelTime after the delete was cancelled. cut says
// that f was ended by that; then err is nil.
func (p *deletePass) cancellable(ctx context.Context, f func(context.Context) error) (cut bool, err error) {
	limited, end := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		select {
		case <-p.cancelled.Done():
			p.d.afterCancel(limited)
			end()
		case <-limited.Done():
		}
	})
	defer watcher.Wait()
	defer end()
	if err = f(limited); err != nil && limited.Err() != nil && ctx.Err() == nil {
		return true, nil
	}
	return false, err
}

// rows deletes the samples of rows, and returns the rows that have none left. If the delete is
// cancelled, done returns an error, or the client has gone, rows stops and returns the empty rows
// so far, and the error as stop.
func (p *deletePass) rows(ctx context.Context, rowTimeMS int64, all []rowDelete, probe bool, done func(rows int) error) (empty []rowDelete, stop, err error) {
	for from := 0; from < len(all) && stop == nil; from += p.d.step {
		rows := all[from:min(from+p.d.step, len(all))]
		gone, n, err := p.step(ctx, rowTimeMS, rows, probe)
		if err != nil && err != errCancelled && (ctx.Err() == nil || !p.repeats) {
			return nil, nil, err
		}
		for i := range rows {
			if gone[i] {
				empty = append(empty, rows[i])
			}
		}
		if err == nil || err == errCancelled {
			stop = done(n)
		}
		if stop == nil {
			stop = err
		}
	}
	return empty, stop, nil
}

// step deletes the samples of rows. It returns how many it has done, and, if asked to probe, which
// of them have no samples left, also if it fails. If the delete is cancelled in between, the error
// is errCancelled.
func (p *deletePass) step(ctx context.Context, rowTimeMS int64, rows []rowDelete, probe bool) (gone []bool, did int, err error) {
	gone = make([]bool, len(rows))
	for did < len(rows) {
		if p.cancelled.Err() != nil {
			return gone, did, errCancelled
		}
		from, n := did, min(p.pace.next(), len(rows)-did)
		round := p.begin()
		keys, err := p.erase(ctx, rowTimeMS, rows[from:from+n])
		if err != nil {
			return gone, did, err
		}
		if probe {
			atOnce, most := together(p.pace.wide)
			left, err := p.d.haveSamples(ctx, atOnce, most, keys, p.turn)
			if err != nil {
				return gone, did, err
			}
			for i := range left {
				gone[from+i] = !left[i]
			}
		}
		did += n
		p.pace.took(n, round.worked())
		p.d.metrics.atOnce.Set(float64(p.pace.wide))
		if err := p.rest(ctx, round); err != nil {
			return gone, did, err
		}
	}
	return gone, did, nil
}

// areAll reports whether a partition has no row keys other than those of some.
func (d *Deleter) areAll(ctx context.Context, part rowkey.Partition, some []rowDelete) (bool, error) {
	known := make(map[rowkey.Key]bool, len(some))
	for i := range some {
		known[some[i].key] = true
	}
	others := 0
	err := rowkey.Each(ctx, d.ks.Session, rowkey.ListRowKeys, part.Args(), func(k rowkey.Key) error {
		if !known[k] {
			others++
		}
		return nil
	})
	return others == 0, err
}

// erase deletes samples of rows, and returns the rows' keys; the key of a row that cannot be in
// data_points is nil.
func (p *deletePass) erase(ctx context.Context, rowTimeMS int64, rows []rowDelete) (keys [][]byte, err error) {
	keys = make([][]byte, len(rows))
	batches := make([][]cql.Entry, 0, len(rows))
	for i, r := range rows {
		key, err := rowkey.Partition{Metric: p.metric, TimeMS: rowTimeMS}.DataKey(r.key)
		if err != nil {
			continue
		}
		keys[i] = key
		batches = append(batches, []cql.Entry{r.statement(key)})
	}
	err = p.send(ctx, p.stampMS, batches)
	for _, key := range keys {
		if key != nil {
			p.d.forget(key)
		}
	}
	if err == nil {
		p.d.metrics.rows.Add(float64(len(batches)))
	}
	return keys, err
}

// statement returns the statement that deletes the row or its range of columns.
func (r *rowDelete) statement(key []byte) cql.Entry {
	if r.whole {
		return cql.Entry{Statement: deleteRow, Args: []any{key}}
	}
	return cql.Entry{Statement: deleteSlice, Args: []any{key, rowtime.ColumnBytes(r.from), rowtime.ColumnBytes(r.to)}}
}

// send sends batches of one partition each. Small batches with the same replicas are combined,
// since a statement costs a node, and this process, more than its contents. The number of
// partitions in flight is the same as with a statement for each, so that other requests do not
// wait longer.
func (p *deletePass) send(ctx context.Context, stampMS int64, batches [][]cql.Entry) error {
	session := p.d.ks.Session
	atOnce, most := together(p.pace.wide)
	joined := rowkey.JoinBatches(most, batches, session.ReplicaSet)
	return work.Parallel(ctx, atOnce, len(joined), "delete rows", func(ctx context.Context, i int) error {
		p.turn(ctx)
		_, err := rowkey.SendJoined(ctx, session.Batch, stampMS, joined[i])
		return err
	})
}

// sendInRounds sends batches as send does, with rests. That may take longer than jobSilence, so it
// reports that the delete goes on.
func (p *deletePass) sendInRounds(ctx context.Context, stampMS int64, batches [][]cql.Entry) error {
	for len(batches) > 0 {
		n := min(p.pace.next(), len(batches))
		some := batches[:n]
		batches = batches[n:]
		round := p.begin()
		if err := p.send(ctx, stampMS, some); err != nil {
			return err
		}
		if err := p.rest(ctx, round); err != nil {
			return err
		}
		p.goesOn()
	}
	return nil
}

// together divides the rows that are processed concurrently into batches of equal size.
func together(wide int) (batches, rows int) {
	batches = (wide + rowkey.BatchPartitions - 1) / rowkey.BatchPartitions
	return batches, (wide + batches - 1) / batches
}

// unindex removes the index rows of rows without samples, which have the same metric and row
// time. whole says that the row time has no other rows. The caller then calls settleRowTime.
//
// The index rows by which the delete finds rows are removed after all others. So if it is
// interrupted and requested again, it finds the rows whose index rows are left.
func (d *Deleter) unindex(ctx context.Context, p *deletePass, rowTimeMS int64, empty []rowDelete, whole bool) error {
	part := rowkey.Partition{Metric: p.metric, TimeMS: rowTimeMS}
	// Rows of the legacy form are in no other index table.
	typed := slices.DeleteFunc(slices.Clone(empty), func(r rowDelete) bool { return r.key.Type == rowtime.TypeLegacy })
	rowKeys, err := rowKeyRuns.batches(ctx, d.ks.Session, part.Args(), typed, whole)
	if err != nil {
		return err
	}
	finding, err := p.findingTags(ctx, part)
	if err != nil {
		return err
	}
	others, found, err := p.tagRows(ctx, part, typed, whole, finding)
	if err != nil {
		return err
	}
	others = slices.Concat(p.legacyKeys(rowTimeMS, empty), others, p.tagIndexedRows(rowTimeMS, typed))
	if len(finding) > 0 {
		others = slices.Concat(rowKeys, others)
	} else {
		found = rowKeys
	}
	if err := p.sendInRounds(ctx, p.indexMS, others); err != nil {
		return err
	}
	if err := p.sendInRounds(ctx, p.indexMS, found); err != nil {
		return err
	}
	d.metrics.unindexed.Add(float64(len(empty)))
	return nil
}

// findingTags returns the tags by which the delete may find the rows of a partition in the
// inverted index; none if it finds them in row_keys. See Deleter.eachMatch.
func (p *deletePass) findingTags(ctx context.Context, part rowkey.Partition) ([]string, error) {
	literals := rowkey.Literals(p.del.Matchers)
	if len(literals) == 0 || !p.d.ks.Tables.Own {
		return nil, nil
	}
	if covered, err := p.d.isCovered(ctx, part); err != nil || !covered {
		return nil, err
	}
	tags := make([]string, len(literals))
	for i, m := range literals {
		tags[i] = m.Tag
	}
	return tags, nil
}

// legacyKeys returns the deletes from row_key_index.
func (p *deletePass) legacyKeys(rowTimeMS int64, empty []rowDelete) [][]cql.Entry {
	groups := rowkey.Groups[string]{}
	for _, r := range empty {
		key, err := rowkey.Partition{Metric: p.metric, TimeMS: rowTimeMS}.DataKey(r.key)
		if p.legacy && err == nil {
			groups.Add("", deleteLegacyKey, []byte(p.metric), key)
		}
	}
	return groups.Batches()
}

// tagRows returns the deletes from varve_row_index: found are those of the finding tags.
func (p *deletePass) tagRows(ctx context.Context, part rowkey.Partition, empty []rowDelete, whole bool, finding []string) (others, found [][]cql.Entry, err error) {
	if !p.d.ks.Tables.Own {
		return nil, nil, nil
	}
	byPlace := map[rowkey.TagPlace][]rowDelete{}
	for _, r := range empty {
		for at := range rowkey.TagPlaces(r.key.Tags, p.d.ks.IndexShards) {
			byPlace[at] = append(byPlace[at], r)
		}
	}
	for at, rows := range byPlace {
		some, err := tagRowRuns.batches(ctx, p.d.ks.Session, at.Args(part), rows, whole)
		if err != nil {
			return nil, nil, err
		}
		if slices.Contains(finding, at.Tag) {
			found = append(found, some...)
		} else {
			others = append(others, some...)
		}
	}
	return others, found, nil
}

// tagIndexedRows returns the deletes from tag_indexed_row_keys.
func (p *deletePass) tagIndexedRows(rowTimeMS int64, empty []rowDelete) [][]cql.Entry {
	if !p.tagIndexed {
		return nil
	}
	groups := rowkey.Groups[string]{}
	for _, r := range empty {
		for pair, hash := range p.d.writer.TagIndexed(p.metric, r.key.Tags) {
			groups.Add(pair, deleteTagIndexed, p.metric, schema.DataPoints, rowTimeMS, pair, string(r.key.Type), int(hash), cql.TagMap{Tags: r.key.Tags})
		}
	}
	return groups.Batches()
}

// settleRowTime tells other nodes that row keys of a row time were removed, and removes the row
// time if none are left.
func (d *Deleter) settleRowTime(ctx context.Context, p *deletePass, rowTimeMS int64) error {
	part := rowkey.Partition{Metric: p.metric, TimeMS: rowTimeMS}
	left, err := d.hasRowKeys(ctx, part)
	if err != nil {
		return err
	}
	state, err := rowkey.ReadState(ctx, d.ks, part)
	if err != nil {
		return err
	}
	if !left {
		p.emptied = true
		if err := d.ks.Session.Exec(ctx, deleteRowTime, p.indexMS, p.metric, schema.DataPoints, rowTimeMS); err != nil {
			return err
		}
		if d.ks.Tables.Own {
			if err := d.ks.Session.Exec(ctx, deleteRowState, p.indexMS, p.metric, rowTimeMS); err != nil {
				return err
			}
		}
	}
	return d.writer.Removed(ctx, part, state, p.indexMS, left)
}

// hasRowKeys reports whether a partition has row keys, or so many tombstones that it cannot
// tell. In both cases the row time is kept.
func (d *Deleter) hasRowKeys(ctx context.Context, part rowkey.Partition) (bool, error) {
	f, err := rowkey.ReadFirst(ctx, d.ks.Session, part)
	return f.Any || f.Hidden, err
}

// unusedName removes the name of a metric without rows. It is left over if a delete was
// interrupted before it, or if the rows have expired.
func (p *deletePass) unusedName(ctx context.Context) error {
	d := p.d
	if !d.ks.Tables.RowKeyTimeIndex || !d.ks.Tables.StringIndex {
		return nil
	}
	used, err := rowkey.MayHold(ctx, d.ks.Session, probeRowTime, p.metric, schema.DataPoints)
	if err != nil || used {
		return err
	}
	named, err := rowkey.MayHold(ctx, d.ks.Session, probeName, []byte(schema.MetricNames), d.ks.Tables.NameColumn(p.metric))
	if err != nil || !named {
		return err
	}
	if p.keepFrom, err = d.keepFrom(ctx); err != nil || p.keepFrom != math.MaxInt64 {
		return err
	}
	if p.legacy, err = d.hasLegacyKeys(ctx, p.metric); err != nil || p.legacy {
		return err
	}
	return p.name(ctx)
}

// name removes the name of a metric that has no rows left. The name concerns all row times, not
// only those that were announced, so it needs an announcement of its own.
func (p *deletePass) name(ctx context.Context) (err error) {
	d := p.d
	if p.indexMS, err = d.writer.Announce(ctx, rowkey.Span{Metric: p.metric, LowMS: math.MinInt64, HighMS: math.MaxInt64}); err != nil {
		return err
	}
	left, err := rowkey.MayHold(ctx, d.ks.Session, probeRowTime, p.metric, schema.DataPoints)
	if err != nil || left {
		return err
	}
	if p.legacy {
		if left, err = d.hasLegacyKeys(ctx, p.metric); err != nil || left {
			return err
		}
	}
	return d.ks.Session.Exec(ctx, deleteMetricName, p.indexMS, []byte(schema.MetricNames), d.ks.Tables.NameColumn(p.metric))
}
