package kairosrows

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/model"
	"varve/internal/rowtime"
)

var (
	readLegacyKeys = &cql.Statement{Name: "read_legacy_keys",
		Text: "SELECT column1 FROM row_key_index WHERE key = ? AND column1 >= ? AND column1 < ?"}
	readLegacyKeysAtQuorum = &cql.Statement{Name: "read_legacy_keys", Level: cql.Quorum, Text: readLegacyKeys.Text}
	readAnyLegacyKey       = &cql.Statement{Name: "read_any_legacy_key", Scan: true, PageSize: 1,
		Text: "SELECT key FROM row_key_index LIMIT 1"}
)

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

// mayHold reports whether row_key_index is worth a statement. A look that fails
// tells nothing: after KairosDB's deletes the table may be full of tombstones, and
// is then looked at again as often as an empty one.
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
		if tombs := (*cql.TombstoneError)(nil); !errors.As(err, &tombs) {
			t.lookAt.Store(0)
		}
		t.empty.Store(false)
		return true, ctx.Err()
	}
	t.empty.Store(!found)
	return found, nil
}

// readLegacy reads the keys of row_key_index in a span. Negative row times come
// after the others there.
func (l *Look) readLegacy(ctx context.Context, s span) ([]rowtime.Key, error) {
	may, err := l.reader.legacy.mayHold(ctx, l.reader)
	if err != nil || !may {
		return nil, err
	}
	var keys []rowtime.Key
	err = eachLegacyKey(ctx, l.reader.ks.Session, readLegacyKeys, s, func(k rowtime.Key, err error) {
		l.trace.indexRows.Add(1)
		if err != nil {
			l.reader.badLegacyKeys.Inc() // KairosDB cannot read it either
			return
		}
		keys = append(keys, k)
	})
	return keys, err
}

// eachLegacyKey calls f with the keys that row_key_index has of a span, by a statement;
// the error is that of one that cannot be read.
func eachLegacyKey(ctx context.Context, session *cql.Session, read *cql.Statement, s span, f func(rowtime.Key, error)) error {
	parts := []span{s}
	if s.lowMS < 0 && s.highMS >= 0 {
		parts = []span{{s.metric, s.lowMS, -1}, {s.metric, 0, s.highMS}}
	}
	for _, part := range parts {
		rows := session.Query(ctx, read, []byte(part.metric),
			rowtime.AppendIndexBound(nil, part.metric, part.lowMS, false), rowtime.AppendIndexBound(nil, part.metric, part.highMS, true))
		var column cql.Raw
		for rows.Scan(&column) {
			k, err := rowtime.ParseKey(string(column))
			if err == nil && k.Metric != part.metric {
				err = errOtherMetric
			}
			f(k, err)
		}
		if err := rows.Close(); err != nil {
			return err
		}
	}
	return nil
}

var errOtherMetric = errors.New("the key is of another metric")

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
