package embedded

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"varve/internal/store"
)

// appendName appends a name to a catalogue key so that names sort as they are
// and none is a prefix of another.
func appendName(dst []byte, name string) []byte {
	for i := range len(name) {
		dst = append(dst, name[i])
		if name[i] == 0 {
			dst = append(dst, 255)
		}
	}
	return append(dst, 0, 1)
}

// cutName is the inverse of appendName.
func cutName(key []byte) (name string, rest []byte, ok bool) {
	var b strings.Builder
	for i := 0; i+1 < len(key); i++ {
		if key[i] != 0 {
			b.WriteByte(key[i])
			continue
		}
		if key[i+1] == 1 {
			return b.String(), key[i+2:], true
		}
		b.WriteByte(0)
		i++
	}
	return "", nil, false
}

func valueKey(service, serviceKey, key string) []byte {
	k := appendName(appendName([]byte{tableValue}, service), serviceKey)
	return append(k, key...)
}

func modifiedKey(service, serviceKey string) []byte {
	return appendName(appendName([]byte{tableModified}, service), serviceKey)
}

func checkNames(names ...string) error {
	for _, n := range names {
		if n == "" {
			return &store.InputError{Reason: "service, service key and key may not be empty"}
		}
	}
	return nil
}

// Get implements store.KeyValues.
func (s *Store) Get(ctx context.Context, service, serviceKey, key string) (store.Value, error) {
	if err := s.checkOpen(ctx); err != nil {
		return store.Value{}, err
	}
	raw, closer, err := s.catalogue.db.Get(valueKey(service, serviceKey, key))
	if errors.Is(err, pebble.ErrNotFound) {
		return store.Value{}, store.ErrNotFound
	}
	if err != nil {
		return store.Value{}, fmt.Errorf("get %s/%s/%s: %w", service, serviceKey, key, err)
	}
	defer closer.Close()
	if len(raw) < valueHead {
		return store.Value{}, &store.CorruptionError{File: "catalogue", Reason: fmt.Sprintf("value of %s/%s/%s is cut off", service, serviceKey, key)}
	}
	return store.Value{Text: string(raw[valueHead:]), Modified: timeOf(raw)}, nil
}

// valueHead is the size of the time before a text.
const valueHead = 8

func timeOf(raw []byte) time.Time { return time.UnixMilli(int64(binary.BigEndian.Uint64(raw))) }

// Bounds on what clients store as key-values. They keep a client from filling the
// disk, and the catalogue quick to open.
const (
	maxValues     = 1_000_000
	maxValueBytes = 1 << 30
)

// A valueCount counts the key-values of clients. They are counted when the first
// one is changed.
type valueCount struct {
	sync.Mutex // held across commits; taken alone
	known      bool
	keys       int
	bytes      int64 // of keys and texts

	maxKeys  int
	maxBytes int64
}

// Set implements store.KeyValues.
func (s *Store) Set(ctx context.Context, service, serviceKey, key, value string) error {
	return s.change(ctx, service, serviceKey, key, &value)
}

// Unset implements store.KeyValues.
func (s *Store) Unset(ctx context.Context, service, serviceKey, key string) error {
	return s.change(ctx, service, serviceKey, key, nil)
}

// change sets a key to a text, or removes it with nil, and moves the modification
// time of its service key.
func (s *Store) change(ctx context.Context, service, serviceKey, key string, text *string) error {
	if err := s.checkOpen(ctx); err != nil {
		return err
	}
	if err := checkNames(service, serviceKey, key); err != nil {
		return err
	}
	if err := s.writable(); err != nil {
		return err
	}
	if store.OwnService(service) {
		return s.put(service, serviceKey, key, text, false)
	}
	s.values.Lock()
	defer s.values.Unlock()
	if err := s.countValues(ctx); err != nil {
		return err
	}
	old, err := s.valueBytes(service, serviceKey, key)
	if err != nil {
		return err
	}
	keys, size := s.values.keys, s.values.bytes-old
	if old > 0 {
		keys--
	}
	forget := false
	if text != nil {
		keys++
		size += int64(len(valueKey(service, serviceKey, key)) + valueHead + len(*text))
		if err := s.values.limit(keys, size, "store "+service+"/"+serviceKey+"/"+key); err != nil {
			return err
		}
	} else {
		if old == 0 {
			return nil
		}
		if forget, err = s.isLast(service, serviceKey, key); err != nil {
			return err
		}
	}
	if err := s.put(service, serviceKey, key, text, forget); err != nil {
		return err
	}
	s.values.keys, s.values.bytes = keys, size
	return nil
}

// limit reports that there would be too many key-values. What makes them fewer or
// smaller is always possible.
func (c *valueCount) limit(keys int, size int64, what string) error {
	switch {
	case keys > c.maxKeys && keys > c.keys:
		return &store.LimitError{Limit: "metadata keys", Max: int64(c.maxKeys), Need: int64(keys), What: what + "; delete keys that nobody reads"}
	case size > c.maxBytes && size > c.bytes:
		return &store.LimitError{Limit: "bytes of metadata", Max: c.maxBytes, Need: size, What: what + "; delete keys that nobody reads"}
	}
	return nil
}

// countValues counts what is stored, once. s.values must be held.
func (s *Store) countValues(ctx context.Context) error {
	if s.values.known {
		return nil
	}
	var keys int
	var size int64
	prefix := []byte{tableValue}
	it, err := s.catalogue.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return fmt.Errorf("count metadata: %w", err)
	}
	for it.First(); it.Valid() && err == nil; it.Next() {
		if service, _, _ := cutName(it.Key()[1:]); !store.OwnService(service) {
			keys++
			size += int64(len(it.Key()) + len(it.Value()))
		}
		err = ctx.Err()
	}
	if err = errors.Join(err, it.Close()); err != nil {
		return fmt.Errorf("count metadata: %w", err)
	}
	s.values.known, s.values.keys, s.values.bytes = true, keys, size
	return nil
}

// valueBytes is the size of a key and its text, 0 if it is not there.
func (s *Store) valueBytes(service, serviceKey, key string) (int64, error) {
	k := valueKey(service, serviceKey, key)
	raw, closer, err := s.catalogue.db.Get(k)
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("get %s/%s/%s: %w", service, serviceKey, key, err)
	}
	defer closer.Close()
	return int64(len(k) + len(raw)), nil
}

// isLast reports whether a service key has no other key.
func (s *Store) isLast(service, serviceKey, key string) (last bool, err error) {
	base := appendName(appendName([]byte{tableValue}, service), serviceKey)
	it, err := s.catalogue.db.NewIter(&pebble.IterOptions{LowerBound: base, UpperBound: after(base)})
	if err != nil {
		return false, fmt.Errorf("list keys: %w", err)
	}
	last = true
	for it.First(); it.Valid() && last; it.Next() {
		last = string(it.Key()[len(base):]) == key
	}
	if err := it.Close(); err != nil {
		return false, fmt.Errorf("list keys: %w", err)
	}
	return last, nil
}

// put writes or removes a key. forget also removes the modification time.
func (s *Store) put(service, serviceKey, key string, text *string, forget bool) error {
	b := s.catalogue.db.NewBatch()
	defer b.Close()
	now := binary.BigEndian.AppendUint64(make([]byte, 0, valueHead), uint64(s.now().UnixMilli()))
	k, modified := valueKey(service, serviceKey, key), modifiedKey(service, serviceKey)
	var err error
	if forget {
		err = b.Delete(modified, nil)
	} else {
		err = b.Set(modified, now, nil)
	}
	if text != nil {
		err = errors.Join(err, b.Set(k, append(now, *text...), nil))
	} else {
		err = errors.Join(err, b.Delete(k, nil))
	}
	if err != nil {
		return err
	}
	return s.catalogue.apply(b, "store "+service+"/"+serviceKey+"/"+key)
}

// ServiceKeys implements store.KeyValues.
func (s *Store) ServiceKeys(ctx context.Context, service string) iter.Seq2[string, error] {
	base := appendName([]byte{tableValue}, service)
	return s.list(ctx, base, base, func(rest []byte) (string, int, bool) {
		name, behind, ok := cutName(rest)
		return name, len(rest) - len(behind), ok
	})
}

// Keys implements store.KeyValues.
func (s *Store) Keys(ctx context.Context, service, serviceKey, prefix string) iter.Seq2[string, error] {
	base := appendName(appendName([]byte{tableValue}, service), serviceKey)
	return s.list(ctx, append(base[:len(base):len(base)], prefix...), base, func(rest []byte) (string, int, bool) {
		return string(rest), len(rest), true
	})
}

// listPage is how many names are read at once. Between pages a list holds nothing
// of the catalogue, since its reader may be slow.
const listPage = 1000

// list yields what name makes of the keys that begin with prefix, without base.
// size is how much of a key the name takes; further keys that begin in the same
// way are passed over.
func (s *Store) list(ctx context.Context, prefix, base []byte, name func(rest []byte) (text string, size int, ok bool)) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		from, end := prefix, after(prefix)
		for from != nil {
			var page []string
			var err error
			if page, from, err = s.page(ctx, from, end, base, name); err != nil {
				yield("", fmt.Errorf("list keys: %w", err))
				return
			}
			for _, text := range page {
				if !yield(text, nil) {
					return
				}
			}
		}
	}
}

// page reads at most listPage names of keys in [from, end). next is where the
// rest begins, nil at the end.
func (s *Store) page(ctx context.Context, from, end, base []byte, name func(rest []byte) (string, int, bool)) (page []string, next []byte, err error) {
	if err := s.checkOpen(ctx); err != nil {
		return nil, nil, err
	}
	it, err := s.catalogue.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: end})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for valid := it.First(); valid; {
		if len(page) == listPage {
			return page, bytes.Clone(it.Key()), nil
		}
		key := it.Key()
		text, size, ok := name(key[len(base):])
		if !ok {
			valid = it.Next()
			continue
		}
		page = append(page, text)
		if len(base)+size == len(key) {
			valid = it.Next()
		} else {
			valid = it.SeekGE(after(key[:len(base)+size]))
		}
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
	}
	return page, nil, nil
}

// after returns the first key that comes after all that begin with prefix. The
// first byte names a table, so there always is one.
func after(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 255 {
			end[i]++
			return end[:i+1]
		}
	}
	return nil
}

// Modified implements store.KeyValues.
func (s *Store) Modified(ctx context.Context, service, serviceKey string) (time.Time, error) {
	if err := s.checkOpen(ctx); err != nil {
		return time.Time{}, err
	}
	raw, closer, err := s.catalogue.db.Get(modifiedKey(service, serviceKey))
	if errors.Is(err, pebble.ErrNotFound) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("modification time of %s/%s: %w", service, serviceKey, err)
	}
	defer closer.Close()
	if len(raw) != 8 {
		return time.Time{}, &store.CorruptionError{File: "catalogue", Reason: fmt.Sprintf("modification time of %s/%s is cut off", service, serviceKey)}
	}
	return timeOf(raw), nil
}
