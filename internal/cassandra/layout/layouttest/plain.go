// Package layouttest has Plain, a minimal layout: the second layout of tests, and an example of
// the interfaces of package layout. Its samples are longs that never expire.
//
//	plain_series   (metric), series          the key of each series
//	plain_samples  (series), time -> value   a row for each sample
package layouttest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/layout"
	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/spool"
	"varve/internal/store"
)

// Name is what the settings of a test call the layout.
const Name = "plain"

var tables = []cql.Definition{
	{Name: "plain_series", Columns: []cql.Column{cql.KeyColumn("metric", "text"), cql.OrderColumn("series", "blob")}},
	{Name: "plain_samples", Columns: []cql.Column{cql.KeyColumn("series", "blob"), cql.OrderColumn("time", "bigint"), cql.PlainColumn("value", "bigint")}},
}

var (
	readMetrics  = &cql.Statement{Name: "plain_metrics", Text: "SELECT DISTINCT metric FROM plain_series", Scan: true}
	readSeries   = &cql.Statement{Name: "plain_series", Text: "SELECT series FROM plain_series WHERE metric = ?"}
	writeSeries  = &cql.Statement{Name: "plain_series_write", Text: "INSERT INTO plain_series (metric, series) VALUES (?, ?)"}
	readUpward   = &cql.Statement{Name: "plain_samples", Text: "SELECT time, value FROM plain_samples WHERE series = ? AND time >= ? AND time <= ?"}
	readDownward = &cql.Statement{Name: "plain_samples_down", Text: readUpward.Text + " ORDER BY time DESC"}
	writeSample  = &cql.Statement{Name: "plain_write", Text: "INSERT INTO plain_samples (series, time, value) VALUES (?, ?, ?)"}
	deleteRange  = &cql.Statement{Name: "plain_delete", Text: "DELETE FROM plain_samples WHERE series = ? AND time >= ? AND time <= ?", Level: cql.Everywhere}
)

// Plain is the layout.
type Plain struct{}

var _ layout.Layout = Plain{}

// CheckSeries implements layout.Layout.
func (Plain) CheckSeries(s model.Series) error {
	if s.Type.Kind() != model.Long {
		return &store.InputError{Reason: fmt.Sprintf("the plain layout holds longs only, not %s", s.Type)}
	}
	return nil
}

// CheckSample implements layout.Layout.
func (Plain) CheckSample(_ int64, _ model.Kind, _ int64, _ uint64, _ []byte, ttl uint32) error {
	if ttl > 0 {
		return &store.InputError{Reason: "samples of the plain layout never expire"}
	}
	return nil
}

// Open implements layout.Layout.
func (Plain) Open(ctx context.Context, session *cql.Session, o layout.Options) (layout.Keyspace, error) {
	if o.Role == layout.RoleAll {
		if err := session.CreateKeyspace(ctx, "{'class': 'SimpleStrategy', 'replication_factor': 1}"); err != nil {
			return nil, err
		}
	}
	if err := session.WaitKeyspace(ctx); err != nil {
		return nil, err
	}
	if err := session.MakeTables(ctx, o.Role == layout.RoleAll, "", tables...); err != nil {
		return nil, err
	}
	return &keyspace{session}, nil
}

// A keyspace is an open keyspace, with its sink and its deleter.
type keyspace struct{ session *cql.Session }

var (
	_ layout.Keyspace = (*keyspace)(nil)
	_ layout.Sink     = (*keyspace)(nil)
	_ layout.Deleter  = (*keyspace)(nil)
)

func (k *keyspace) Description() layout.Description {
	return layout.Description{Name: k.session.KeyspaceName()}
}

func (k *keyspace) Confirm(context.Context) error { return nil }
func (k *keyspace) Sink() layout.Sink             { return k }
func (k *keyspace) Look() layout.Look             { return &look{session: k.session} }
func (k *keyspace) Deleter() layout.Deleter       { return k }
func (k *keyspace) Close()                        {}

// Refusals implements layout.Sink.
func (k *keyspace) Refusals() []layout.Refusal { return nil }

// Write implements spool.Sink.
func (k *keyspace) Write(ctx context.Context, g *spool.Generation) error {
	for id := range g.Series() {
		run := head.Run{Stamps: true}
		series, known := g.SeriesOf(id)
		if there, err := g.Snapshot(id, model.AllTime, &run); err != nil || !there || !known {
			return err
		}
		var samples model.Columns
		if err := run.DecodeAll(&samples); err != nil {
			return err
		}
		if err := k.write(ctx, g.StampMS(), series, &samples); err != nil {
			return err
		}
	}
	return nil
}

func (k *keyspace) write(ctx context.Context, lastMS int64, s model.Series, samples *model.Columns) error {
	key := s.AppendKey(nil)
	if err := k.session.Exec(ctx, writeSeries, lastMS, s.Metric, key); err != nil {
		return err
	}
	for i, ms := range samples.Times {
		stampMS := lastMS
		if len(samples.Stamps) > 0 {
			stampMS = min(samples.Stamps[i], lastMS)
		}
		if err := k.session.Exec(ctx, writeSample, stampMS, key, ms, int64(samples.Values[i])); err != nil {
			return err
		}
	}
	return nil
}

// Delete implements layout.Deleter.
func (k *keyspace) Delete(ctx context.Context, stampMS int64, deletions ...store.Deletion) error {
	for _, d := range deletions {
		all, err := seriesOf(ctx, k.session, cql.Everywhere, d.Metric)
		if err != nil {
			return err
		}
		for _, s := range all {
			if !d.Means(s) {
				continue
			}
			if err := k.session.Exec(ctx, deleteRange, stampMS, s.AppendKey(nil), d.Range.StartMS, d.Range.EndMS); err != nil {
				return err
			}
		}
	}
	return nil
}

// Other servers are not told about deletes, and deletes are never jobs.

func (k *keyspace) Record(context.Context, int64, ...store.Deletion) error { return nil }

func (k *keyspace) Recorded(context.Context, int64, func(int64, store.Deletion) error) error {
	return nil
}

func (k *keyspace) Place(ms int64, r model.TimeRange) (rowTimeMS, storedMS int64, deleted bool) {
	return 0, ms, r.Contains(ms)
}

func (k *keyspace) Cuts() bool { return false }

func (k *keyspace) DeleteWritten(context.Context, int64, string, []layout.Written) error { return nil }

func (k *keyspace) Jobs(context.Context) ([]layout.Job, error) { return nil, nil }

func (k *keyspace) Cancel(context.Context, string) (layout.Job, error) {
	return layout.Job{}, store.ErrNotFound
}

func (k *keyspace) Resume(context.Context) error { return nil }

// seriesOf reads all series of a metric.
func seriesOf(ctx context.Context, session *cql.Session, level cql.Level, metric string) (all []model.Series, err error) {
	rows := session.QueryAt(ctx, level, readSeries, metric)
	for key := []byte(nil); rows.Scan(&key); key = nil {
		s, err := model.ParseKey(string(key))
		if err != nil {
			rows.Close()
			return nil, err
		}
		all = append(all, s)
	}
	return all, rows.Close()
}

// A look is one request's look at the index.
type look struct {
	session *cql.Session
	level   cql.Level
}

func (l *look) Current()              { l.level = cql.Lasting }
func (l *look) RowOf(int64) int64     { return 0 }
func (l *look) Counts() []store.Count { return nil }

// Select implements layout.Look.
func (l *look) Select(ctx context.Context, sel store.Selection) (layout.Found, error) {
	all, err := seriesOf(ctx, l.session, l.level, sel.Metric)
	if err != nil {
		return nil, err
	}
	f := &found{look: l}
	for _, s := range all {
		if model.MatchesAll(sel.Matchers, s.Tags) {
			f.series = append(f.series, s)
		}
	}
	return f, sel.LimitCheck(int64(len(f.series)))
}

// Names implements layout.Look.
func (l *look) Names(ctx context.Context, q store.NamesQuery) (names []string, more bool, err error) {
	if err := q.Check(); err != nil {
		return nil, false, err
	}
	all, err := l.names(ctx, q)
	if err != nil {
		return nil, false, err
	}
	for _, name := range all {
		if strings.HasPrefix(name, q.Prefix) && (q.Pattern == nil || q.Pattern.MatchString(name)) {
			names = append(names, q.Entry(name))
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return q.After != "" && model.CompareNames(name, q.After) <= 0 })
	slices.SortFunc(names, model.CompareNames)
	if names = slices.Compact(names); q.Limit > 0 && len(names) > q.Limit {
		return names[:q.Limit], true, nil
	}
	return names, false, nil
}

// names returns the names of the kind that is asked for.
func (l *look) names(ctx context.Context, q store.NamesQuery) (names []string, err error) {
	metrics := []string{q.Metric}
	if q.Metric == "" {
		metrics = nil
		rows := l.session.QueryAt(ctx, l.level, readMetrics)
		for metric := ""; rows.Scan(&metric); {
			metrics = append(metrics, metric)
		}
		if err := rows.Close(); err != nil {
			return nil, err
		}
	}
	if q.Kind == store.MetricNames {
		return metrics, nil
	}
	for _, metric := range metrics {
		all, err := seriesOf(ctx, l.session, l.level, metric)
		if err != nil {
			return nil, err
		}
		for _, s := range all {
			for tag, value := range s.Tags.All() {
				switch {
				case q.Kind == store.TagNames:
					names = append(names, tag)
				case q.Tag == "" || q.Tag == tag:
					names = append(names, value)
				}
			}
		}
	}
	return names, nil
}

// found are the series that a look has found.
type found struct {
	look   *look
	series []model.Series
}

func (f *found) Len() int                      { return len(f.series) }
func (f *found) Series(place int) model.Series { return f.series[place] }

// Open implements layout.Found.
func (f *found) Open(ctx context.Context, place int, o store.ReadOptions) store.Cursor {
	statement := readUpward
	if o.Descending {
		statement = readDownward
	}
	rows := f.look.session.QueryAt(ctx, f.look.level, statement, f.series[place].AppendKey(nil), o.Range.StartMS, o.Range.EndMS)
	return &cursor{rows: rows, limit: o.Limit}
}

// A cursor reads the samples of a series.
type cursor struct {
	rows  *cql.Rows
	limit int // samples, 0 is all
	read  int
	block store.Block
}

// Next implements store.Cursor.
func (c *cursor) Next() (*store.Block, error) {
	const most = 1000
	c.block.Columns.Reset()
	var ms, value int64
	for c.block.Len() < most && (c.limit == 0 || c.read < c.limit) && c.rows.Scan(&ms, &value) {
		c.block.AppendFixed(ms, uint64(value), 0)
		c.read++
	}
	if c.block.Len() > 0 {
		return &c.block, nil
	}
	return nil, c.rows.Close()
}

// Close implements store.Cursor.
func (c *cursor) Close() { c.rows.Close() }
