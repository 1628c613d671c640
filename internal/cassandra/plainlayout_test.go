package cassandra

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

// plainName is what the settings of a test call the layout.
const plainName = "plain"

var plainTables = []cql.Definition{
	{Name: "plain_series", Columns: []cql.Column{cql.KeyColumn("metric", "text"), cql.OrderColumn("series", "blob")}},
	{Name: "plain_samples", Columns: []cql.Column{cql.KeyColumn("series", "blob"), cql.OrderColumn("time", "bigint"), cql.PlainColumn("value", "bigint")}},
}

var (
	readPlainMetrics  = &cql.Statement{Name: "plain_metrics", Text: "SELECT DISTINCT metric FROM plain_series", Scan: true}
	readPlainSeries   = &cql.Statement{Name: "plain_series", Text: "SELECT series FROM plain_series WHERE metric = ?"}
	writePlainSeries  = &cql.Statement{Name: "plain_series_write", Text: "INSERT INTO plain_series (metric, series) VALUES (?, ?)"}
	readPlainUpward   = &cql.Statement{Name: "plain_samples", Text: "SELECT time, value FROM plain_samples WHERE series = ? AND time >= ? AND time <= ?"}
	readPlainDownward = &cql.Statement{Name: "plain_samples_down", Text: readPlainUpward.Text + " ORDER BY time DESC"}
	writePlainSample  = &cql.Statement{Name: "plain_write", Text: "INSERT INTO plain_samples (series, time, value) VALUES (?, ?, ?)"}
	deletePlainRange  = &cql.Statement{Name: "plain_delete", Text: "DELETE FROM plain_samples WHERE series = ? AND time >= ? AND time <= ?", Level: cql.Everywhere}
)

// plainLayout is a minimal layout: the second layout of tests, and an example of the interfaces of
// package layout. Its samples are longs that never expire.
//
//	plain_series   (metric), series          the key of each series
//	plain_samples  (series), time -> value   a row for each sample
type plainLayout struct{}

var _ layout.Layout = plainLayout{}

// CheckSeries implements layout.Layout.
func (plainLayout) CheckSeries(s model.Series) error {
	if s.Type.Kind() != model.Long {
		return &store.InputError{Reason: fmt.Sprintf("the plain layout holds longs only, not %s", s.Type)}
	}
	return nil
}

// CheckSample implements layout.Layout.
func (plainLayout) CheckSample(_ int64, _ model.Kind, _ int64, _ uint64, _ []byte, ttl uint32) error {
	if ttl > 0 {
		return &store.InputError{Reason: "samples of the plain layout never expire"}
	}
	return nil
}

// Open implements layout.Layout.
func (plainLayout) Open(ctx context.Context, session *cql.Session, o layout.Options) (layout.Keyspace, error) {
	if o.Role == layout.RoleAll {
		if err := session.CreateKeyspace(ctx, "{'class': 'SimpleStrategy', 'replication_factor': 1}"); err != nil {
			return nil, err
		}
	}
	if err := session.WaitKeyspace(ctx); err != nil {
		return nil, err
	}
	if err := session.MakeTables(ctx, o.Role == layout.RoleAll, "", plainTables...); err != nil {
		return nil, err
	}
	return &plainKeyspace{session}, nil
}

// A plainKeyspace is an open keyspace, with its sink and its deleter.
type plainKeyspace struct{ session *cql.Session }

var (
	_ layout.Keyspace = (*plainKeyspace)(nil)
	_ layout.Sink     = (*plainKeyspace)(nil)
	_ layout.Deleter  = (*plainKeyspace)(nil)
)

func (k *plainKeyspace) Description() layout.Description {
	return layout.Description{Name: k.session.KeyspaceName()}
}

func (k *plainKeyspace) Confirm(context.Context) error { return nil }
func (k *plainKeyspace) Sink() layout.Sink             { return k }
func (k *plainKeyspace) Look() layout.Look             { return &plainLook{session: k.session} }
func (k *plainKeyspace) Deleter() layout.Deleter       { return k }
func (k *plainKeyspace) Close()                        {}

// Refusals implements layout.Sink.
func (k *plainKeyspace) Refusals() []layout.Refusal { return nil }

// Write implements spool.Sink.
func (k *plainKeyspace) Write(ctx context.Context, g *spool.Generation) error {
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

func (k *plainKeyspace) write(ctx context.Context, lastMS int64, s model.Series, samples *model.Columns) error {
	key := s.AppendKey(nil)
	if err := k.session.Exec(ctx, writePlainSeries, lastMS, s.Metric, key); err != nil {
		return err
	}
	for i, ms := range samples.Times {
		stampMS := lastMS
		if len(samples.Stamps) > 0 {
			stampMS = min(samples.Stamps[i], lastMS)
		}
		if err := k.session.Exec(ctx, writePlainSample, stampMS, key, ms, int64(samples.Values[i])); err != nil {
			return err
		}
	}
	return nil
}

// Delete implements layout.Deleter.
func (k *plainKeyspace) Delete(ctx context.Context, stampMS int64, deletions ...store.Deletion) error {
	for _, d := range deletions {
		all, err := plainSeriesOf(ctx, k.session, cql.Everywhere, d.Metric)
		if err != nil {
			return err
		}
		for _, s := range all {
			if !d.Means(s) {
				continue
			}
			if err := k.session.Exec(ctx, deletePlainRange, stampMS, s.AppendKey(nil), d.Range.StartMS, d.Range.EndMS); err != nil {
				return err
			}
		}
	}
	return nil
}

// Other servers are not told about deletes, and deletes are never jobs.

func (k *plainKeyspace) Record(context.Context, int64, ...store.Deletion) error { return nil }

func (k *plainKeyspace) Recorded(context.Context, int64, func(int64, store.Deletion) error) error {
	return nil
}

func (k *plainKeyspace) Place(ms int64, r model.TimeRange) (rowTimeMS, storedMS int64, deleted bool) {
	return 0, ms, r.Contains(ms)
}

func (k *plainKeyspace) Cuts() bool { return false }

func (k *plainKeyspace) DeleteWritten(context.Context, int64, string, []layout.Written) error {
	return nil
}

func (k *plainKeyspace) Jobs(context.Context) ([]layout.Job, error) { return nil, nil }

func (k *plainKeyspace) Cancel(context.Context, string) (layout.Job, error) {
	return layout.Job{}, store.ErrNotFound
}

func (k *plainKeyspace) Resume(context.Context) error { return nil }

// plainSeriesOf reads all series of a metric.
func plainSeriesOf(ctx context.Context, session *cql.Session, level cql.Level, metric string) (all []model.Series, err error) {
	rows := session.QueryAt(ctx, level, readPlainSeries, metric)
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

// A plainLook is one request's look at the index.
type plainLook struct {
	session *cql.Session
	level   cql.Level
}

func (l *plainLook) Current()              { l.level = cql.Lasting }
func (l *plainLook) RowOf(int64) int64     { return 0 }
func (l *plainLook) Counts() []store.Count { return nil }

// Select implements layout.Look.
func (l *plainLook) Select(ctx context.Context, sel store.Selection) (layout.Found, error) {
	all, err := plainSeriesOf(ctx, l.session, l.level, sel.Metric)
	if err != nil {
		return nil, err
	}
	f := &plainFound{look: l}
	for _, s := range all {
		if model.MatchesAll(sel.Matchers, s.Tags) {
			f.series = append(f.series, s)
		}
	}
	return f, sel.LimitCheck(int64(len(f.series)))
}

// Names implements layout.Look.
func (l *plainLook) Names(ctx context.Context, q store.NamesQuery) (names []string, more bool, err error) {
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
func (l *plainLook) names(ctx context.Context, q store.NamesQuery) (names []string, err error) {
	metrics := []string{q.Metric}
	if q.Metric == "" {
		metrics = nil
		rows := l.session.QueryAt(ctx, l.level, readPlainMetrics)
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
		all, err := plainSeriesOf(ctx, l.session, l.level, metric)
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

// plainFound are the series that a look has found.
type plainFound struct {
	look   *plainLook
	series []model.Series
}

func (f *plainFound) Len() int                      { return len(f.series) }
func (f *plainFound) Series(place int) model.Series { return f.series[place] }

// Open implements layout.Found.
func (f *plainFound) Open(ctx context.Context, place int, o store.ReadOptions) store.Cursor {
	statement := readPlainUpward
	if o.Descending {
		statement = readPlainDownward
	}
	rows := f.look.session.QueryAt(ctx, f.look.level, statement, f.series[place].AppendKey(nil), o.Range.StartMS, o.Range.EndMS)
	return &plainCursor{rows: rows, limit: o.Limit}
}

// A plainCursor reads the samples of a series.
type plainCursor struct {
	rows  *cql.Rows
	limit int // samples, 0 is all
	read  int
	block store.Block
}

// Next implements store.Cursor.
func (c *plainCursor) Next() (*store.Block, error) {
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
func (c *plainCursor) Close() { c.rows.Close() }
