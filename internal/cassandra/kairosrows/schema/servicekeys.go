package schema

import (
	"context"
	"encoding/binary"
	"iter"
	"strings"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/store"
)

var _ store.KeyValues = (*Keyspace)(nil)

var (
	readServiceKey  = &cql.Statement{Name: "read_service_key", Level: cql.Quorum, Text: "SELECT value, WRITETIME(value) FROM service_index WHERE service = ? AND service_key = ? AND key = ?"}
	writeServiceKey = &cql.Statement{Name: "write_service_key", Prompt: true, Level: cql.Quorum,
		Text: "INSERT INTO service_index (service, service_key, key, value) VALUES (?, ?, ?, ?) USING TTL 0"}
	deleteServiceKey = &cql.Statement{Name: "delete_service_key", Prompt: true, Level: cql.Quorum, Text: "DELETE FROM service_index WHERE service = ? AND service_key = ? AND key = ?"}
	touchService     = &cql.Statement{Name: "touch_service_key", Prompt: true, Level: cql.Quorum, Text: "INSERT INTO service_index (service, service_key, mtime) VALUES (?, ?, now()) USING TTL 0 AND TIMESTAMP ?"}
	listServiceKeys  = &cql.Statement{Name: "list_service_keys", Text: "SELECT service, service_key, key FROM service_index WHERE service = ? ALLOW FILTERING", Scan: true}
	walkServiceKeys  = &cql.Statement{Name: "walk_service_keys", Text: "SELECT service, service_key, key FROM service_index", Scan: true}
	listKeys         = &cql.Statement{Name: "list_keys", Level: cql.Quorum, Text: "SELECT key FROM service_index WHERE service = ? AND service_key = ? AND key >= ?"}
	readStamps       = &cql.Statement{Name: "read_service_stamps", Level: cql.Quorum, Text: "SELECT WRITETIME(value), WRITETIME(mtime) FROM service_index WHERE service = ? AND service_key = ? AND key = ?"}
	readMtimeStamp   = &cql.Statement{Name: "read_mtime_stamp", Level: cql.Quorum, Text: "SELECT WRITETIME(mtime) FROM service_index WHERE service = ? AND service_key = ? LIMIT 1"}
	readModified     = &cql.Statement{Name: "read_service_mtime", Level: cql.Quorum, Text: "SELECT mtime FROM service_index WHERE service = ? AND service_key = ? LIMIT 1"}
)

// Get returns the text of a key. Like KairosDB, it interprets the write time of the value as
// milliseconds.
func (ks *Keyspace) Get(ctx context.Context, service, serviceKey, key string) (store.Value, error) {
	if !ks.Tables.ServiceIndex {
		return store.Value{}, store.ErrNotFound
	}
	var text *string
	var writtenMS *int64
	ok, err := ks.Session.One(ctx, readServiceKey, []any{service, serviceKey, key}, &text, &writtenMS)
	if err != nil {
		return store.Value{}, err
	}
	if !ok || text == nil || writtenMS == nil {
		return store.Value{}, store.ErrNotFound
	}
	return store.Value{Text: *text, Modified: time.UnixMilli(*writtenMS).UTC()}, nil
}

// Set stores a text. It replaces the present value even if that was set by a server whose clock
// is ahead.
func (ks *Keyspace) Set(ctx context.Context, service, serviceKey, key, value string) error {
	return ks.changeKey(ctx, service, serviceKey, key, cql.Entry{Statement: writeServiceKey, Args: []any{service, serviceKey, key, value}})
}

// Unset removes a key, even if it was set by a server whose clock is ahead. Like KairosDB, it
// keeps the time of the change.
func (ks *Keyspace) Unset(ctx context.Context, service, serviceKey, key string) error {
	return ks.changeKey(ctx, service, serviceKey, key, cql.Entry{Statement: deleteServiceKey, Args: []any{service, serviceKey, key}})
}

// changeKey executes a change of a key, and updates mtime.
func (ks *Keyspace) changeKey(ctx context.Context, service, serviceKey, key string, change cql.Entry) error {
	if err := ks.canKeep(service, serviceKey, key); err != nil {
		return err
	}
	valueMS, mtimeMS, err := ks.stampsOver(ctx, service, serviceKey, key)
	if err != nil {
		return err
	}
	return ks.Session.Batch(ctx, valueMS, []cql.Entry{change, {Statement: touchService, Args: []any{service, serviceKey, mtimeMS}}})
}

// maxAhead is by how much the clock of another server may be ahead if it has removed a key that
// this server sets. With a larger difference, readers could not tell from the write time when
// this server's entry was renewed.
const maxAhead = 2 * time.Minute

// stampsOver returns write timestamps above those of a key's value and of mtime. Otherwise a
// change by a server whose clock is behind would be acknowledged but have no effect or, if only
// mtime remains unchanged, not be noticed by others.
func (ks *Keyspace) stampsOver(ctx context.Context, service, serviceKey, key string) (valueMS, mtimeMS int64, err error) {
	var value, mtime *int64
	there, err := ks.Session.One(ctx, readStamps, []any{service, serviceKey, key}, &value, &mtime)
	if err == nil && !there {
		_, err = ks.Session.One(ctx, readMtimeStamp, []any{service, serviceKey}, &mtime)
	}
	if err != nil {
		return 0, 0, err
	}
	own := ks.Stamp()
	valueMS, mtimeMS = own, own
	if mtime != nil {
		mtimeMS = max(own, *mtime+1)
	}
	switch {
	case value != nil:
		valueMS = max(own, *value+1)
	case mtimeMS-own <= maxAhead.Milliseconds():
		valueMS = mtimeMS // the key may have been removed at that time
	}
	return valueMS, mtimeMS, nil
}

func (ks *Keyspace) canKeep(service, serviceKey, key string) error {
	if service == "" || serviceKey == "" || key == "" {
		return &store.InputError{Reason: "service, service key and key must not be empty"}
	}
	if !ks.Tables.ServiceIndex {
		return &store.UnavailableError{Reason: "keyspace " + ks.Name + " has no table service_index: set cassandra.schema.create to tables, or name a keyspace for metadata"}
	}
	return nil
}

// ServiceKeys yields the service keys of a service that have keys, in the order of the ring. It
// scans all partitions of service_index, and lets the server filter them if it can. Like Keys, it
// holds one page at a time: nothing limits how many names clients store.
func (ks *Keyspace) ServiceKeys(ctx context.Context, service string) iter.Seq2[string, error] {
	return ks.listed(func(yield func(string) bool) error {
		err := eachServiceKey(ks.Session.Query(ctx, listServiceKeys, service), service, yield)
		if cql.IsRefused(err, cql.GuardrailHit) { // the first page: nothing was yielded
			err = eachServiceKey(ks.Session.Query(ctx, walkServiceKeys), service, yield)
		}
		return err
	})
}

// listed yields what list yields, then its error. Without service_index there is nothing.
func (ks *Keyspace) listed(list func(yield func(string) bool) error) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if !ks.Tables.ServiceIndex {
			return
		}
		left := false
		err := list(func(name string) bool {
			left = !yield(name, nil)
			return !left
		})
		if err != nil && !left {
			yield("", err)
		}
	}
}

// eachServiceKey yields the service keys of a service in rows. Rows of one partition, which has
// one service key, follow each other.
func eachServiceKey(rows *cql.Rows, service string, yield func(string) bool) error {
	defer rows.Close()
	var of, serviceKey, last string
	var key *string // null: all keys of the partition were removed
	for rows.Scan(&of, &serviceKey, &key) {
		if of != service || key == nil || serviceKey == last {
			continue
		}
		if last = serviceKey; !yield(serviceKey) {
			return nil
		}
	}
	return rows.Close()
}

// Keys yields the keys that begin with prefix, in the order of the server: by bytes of UTF-8, which
// keeps all keys of a prefix together.
func (ks *Keyspace) Keys(ctx context.Context, service, serviceKey, prefix string) iter.Seq2[string, error] {
	return ks.listed(func(yield func(string) bool) error {
		rows := ks.Session.Query(ctx, listKeys, service, serviceKey, prefix)
		defer rows.Close()
		var key *string
		for rows.Scan(&key) && (key == nil || strings.HasPrefix(*key, prefix)) {
			if key != nil && !yield(*key) {
				return nil
			}
		}
		return rows.Close()
	})
}

// Modified returns when a key of the service key was last set or unset.
func (ks *Keyspace) Modified(ctx context.Context, service, serviceKey string) (time.Time, error) {
	if !ks.Tables.ServiceIndex {
		return time.Time{}, nil
	}
	var mtime cql.Raw
	ok, err := ks.Session.One(ctx, readModified, []any{service, serviceKey}, &mtime)
	if err != nil || !ok || len(mtime) != 16 {
		return time.Time{}, err
	}
	return UUIDTime(mtime), nil
}

// UUIDTime returns the time of a timeuuid, which counts units of 100 ns since 1582.
func UUIDTime(u []byte) time.Time {
	const epoch = 0x01b21dd213814000 // 1970 in that count
	low, mid, high := binary.BigEndian.Uint32(u), binary.BigEndian.Uint16(u[4:]), binary.BigEndian.Uint16(u[6:])
	ticks := int64(high&0x0fff)<<48 | int64(mid)<<32 | int64(low)
	ticks -= epoch
	return time.Unix(ticks/1e7, ticks%1e7*100).UTC()
}
