package embedded

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"strings"
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
	if len(raw) < 8 {
		return store.Value{}, &store.CorruptionError{File: "catalogue", Reason: fmt.Sprintf("value of %s/%s/%s is cut off", service, serviceKey, key)}
	}
	return store.Value{Text: string(raw[8:]), Modified: timeOf(raw)}, nil
}

func timeOf(raw []byte) time.Time { return time.UnixMilli(int64(binary.BigEndian.Uint64(raw))) }

// Set implements store.KeyValues.
func (s *Store) Set(ctx context.Context, service, serviceKey, key, value string) error {
	return s.change(ctx, service, serviceKey, key, func(b *pebble.Batch, now []byte) error {
		return b.Set(valueKey(service, serviceKey, key), append(now, value...), nil)
	})
}

// Unset implements store.KeyValues.
func (s *Store) Unset(ctx context.Context, service, serviceKey, key string) error {
	return s.change(ctx, service, serviceKey, key, func(b *pebble.Batch, _ []byte) error {
		return b.Delete(valueKey(service, serviceKey, key), nil)
	})
}

// change runs one write and moves the modification time of its service key.
func (s *Store) change(ctx context.Context, service, serviceKey, key string, write func(b *pebble.Batch, now []byte) error) error {
	if err := s.checkOpen(ctx); err != nil {
		return err
	}
	if err := checkNames(service, serviceKey, key); err != nil {
		return err
	}
	if err := s.writable(); err != nil {
		return err
	}
	b := s.catalogue.db.NewBatch()
	defer b.Close()
	now := binary.BigEndian.AppendUint64(nil, uint64(s.now().UnixMilli()))
	if err := errors.Join(b.Set(modifiedKey(service, serviceKey), now, nil), write(b, now)); err != nil {
		return err
	}
	return s.catalogue.apply(b, "store "+service+"/"+serviceKey+"/"+key)
}

// ServiceKeys implements store.KeyValues.
func (s *Store) ServiceKeys(ctx context.Context, service string) iter.Seq2[string, error] {
	prefix := appendName([]byte{tableValue}, service)
	previous, first := "", true
	return s.list(ctx, prefix, prefix, func(rest []byte) (string, bool) {
		name, _, ok := cutName(rest)
		if !ok || !first && name == previous {
			return "", false
		}
		previous, first = name, false
		return name, true
	})
}

// Keys implements store.KeyValues.
func (s *Store) Keys(ctx context.Context, service, serviceKey, prefix string) iter.Seq2[string, error] {
	base := appendName(appendName([]byte{tableValue}, service), serviceKey)
	return s.list(ctx, append(base[:len(base):len(base)], prefix...), base, func(rest []byte) (string, bool) {
		return string(rest), true
	})
}

// list yields what name makes of the keys that begin with prefix, without base.
func (s *Store) list(ctx context.Context, prefix, base []byte, name func(rest []byte) (string, bool)) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := s.checkOpen(ctx); err != nil {
			yield("", err)
			return
		}
		it, err := s.catalogue.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
		if err != nil {
			yield("", fmt.Errorf("list keys: %w", err))
			return
		}
		for it.First(); it.Valid() && err == nil; it.Next() {
			if n, ok := name(it.Key()[len(base):]); ok && !yield(n, nil) {
				it.Close()
				return
			}
			err = ctx.Err()
		}
		if closeErr := it.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			yield("", fmt.Errorf("list keys: %w", err))
		}
	}
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
