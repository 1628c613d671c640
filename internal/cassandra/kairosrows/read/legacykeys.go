package read

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/rowtime"
)

// legacyTable remembers whether row_key_index is empty. KairosDB has not written to it since
// 1.2, so it is empty in most keyspaces, and reading it for each query would be wasteful.
type legacyTable struct {
	empty  atomic.Bool
	lookAt atomic.Int64 // time of the next check, Unix seconds
}

// legacyLookEvery is how often an empty row_key_index is checked again.
const legacyLookEvery = 10 * time.Minute

// mayHold reports whether row_key_index may have rows. If the check fails, the result is
// unknown: after deletes by KairosDB the table may be full of tombstones, and is then checked
// as often as an empty one.
func (t *legacyTable) mayHold(ctx context.Context, r *Reader) (bool, error) {
	if !r.ks.Tables.RowKeyIndex {
		return false, nil
	}
	now := r.now()
	if due := t.lookAt.Load(); now.Unix() < due || !t.lookAt.CompareAndSwap(due, now.Add(legacyLookEvery).Unix()) {
		return !t.empty.Load(), nil
	}
	var key cql.Raw
	found, err := r.ks.Session.One(ctx, rowkey.AnyLegacyKey, nil, &key)
	if err != nil {
		if !errors.As(err, new(*cql.TombstoneError)) {
			t.lookAt.Store(0)
		}
		t.empty.Store(false)
		return true, ctx.Err()
	}
	t.empty.Store(!found)
	return found, nil
}

// readLegacy calls f with the keys of row_key_index in a span. There, negative row times are
// ordered after the others.
func (l *Look) readLegacy(ctx context.Context, s rowkey.Span, f func(rowtime.Key) error) error {
	may, err := l.reader.legacy.mayHold(ctx, l.reader)
	if err != nil || !may {
		return err
	}
	return rowkey.EachLegacy(ctx, l.reader.ks.Session, l.level, rowkey.LegacyKeys, s, func(k rowtime.Key, err error) error {
		l.trace[countIndexRows].Add(1)
		if err != nil {
			l.reader.badLegacyKeys.Inc() // KairosDB cannot read it either
			return nil
		}
		return f(k)
	})
}

// legacyRows returns the rows that row_key_index has in a span. If they are too many to be
// kept, it calls f with each instead, and returns errMatchesOnly.
func (l *Look) legacyRows(ctx context.Context, s rowkey.Span, f func(legacyRow) error) ([]legacyRow, error) {
	var rows []legacyRow
	bytes, wide := int64(0), false
	err := l.readLegacy(ctx, s, func(k rowtime.Key) error {
		rows = append(rows, legacySeries(k)...)
		bytes += int64(cql.TagMap{Tags: k.Tags}.Size()) + 2*legacyOverhead
		if wide = wide || bytes > l.reader.widest; !wide {
			return nil
		}
		for _, row := range rows {
			if err := f(row); err != nil {
				return err
			}
		}
		rows = rows[:0]
		return nil
	})
	if err == nil && wide {
		err = errMatchesOnly
	}
	return rows, err
}

// legacyOverhead is the memory of a kept row in addition to the bytes of its tags.
const legacyOverhead = 48

// legacySeries returns the series that a key of row_key_index stands for, with their forms.
func legacySeries(k rowtime.Key) []legacyRow {
	keys := rowkey.KeysOfLegacy(k)
	if len(keys) == 1 {
		return []legacyRow{{keys[0], Row{k.RowTimeMS, Typed}}}
	}
	return []legacyRow{{keys[0], Row{k.RowTimeMS, LegacyLong}}, {keys[1], Row{k.RowTimeMS, LegacyDouble}}}
}

type legacyRow struct {
	key rowkey.Key
	row Row
}
