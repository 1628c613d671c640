package catalogue

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
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
	k := appendName(appendName([]byte{TableValue}, service), serviceKey)
	return append(k, key...)
}

func modifiedKey(service, serviceKey string) []byte {
	return appendName(appendName([]byte{TableModified}, service), serviceKey)
}

func checkNames(names ...string) error {
	if slices.Contains(names, "") {
		return &store.InputError{Reason: "service, service key and key may not be empty"}
	}
	return nil
}

// Values are the key-values of a catalogue. It implements [store.KeyValues].
type Values struct {
	catalogue *Catalogue
	options   ValueOptions

	mu    sync.Mutex // one change of a client's key-values at a time; held across commits, taken alone
	known bool       // the counts below are valid; they are taken before the first change
	keys  int
	bytes int64 // of keys and texts

	maxKeys  int
	maxBytes int64
}

// ValueOptions are what the key-values need from the store that has them.
type ValueOptions struct {
	Check    func(context.Context) error // why a call is refused; asked before each access to the catalogue
	Writable func() error                // why a change is refused
	Now      func() time.Time
}

// NewValues returns the key-values of a catalogue.
func NewValues(c *Catalogue, o ValueOptions) *Values {
	return &Values{catalogue: c, options: o, maxKeys: maxValues, maxBytes: maxValueBytes}
}

// Get implements store.KeyValues.
func (v *Values) Get(ctx context.Context, service, serviceKey, key string) (store.Value, error) {
	if err := v.options.Check(ctx); err != nil {
		return store.Value{}, err
	}
	raw, closer, err := v.catalogue.db.Get(valueKey(service, serviceKey, key))
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

// Set implements store.KeyValues.
func (v *Values) Set(ctx context.Context, service, serviceKey, key, value string) error {
	return v.change(ctx, service, serviceKey, key, &value)
}

// Unset implements store.KeyValues.
func (v *Values) Unset(ctx context.Context, service, serviceKey, key string) error {
	return v.change(ctx, service, serviceKey, key, nil)
}

// Change sets a key to a text, or removes it with nil, and moves the modification
// time of its service key.
func (v *Values) change(ctx context.Context, service, serviceKey, key string, text *string) error {
	if err := v.options.Check(ctx); err != nil {
		return err
	}
	if err := checkNames(service, serviceKey, key); err != nil {
		return err
	}
	if err := v.options.Writable(); err != nil {
		return err
	}
	if store.OwnService(service) {
		return v.put(service, serviceKey, key, text, false)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.count(ctx); err != nil {
		return err
	}
	old, err := v.valueBytes(service, serviceKey, key)
	if err != nil {
		return err
	}
	keys, size := v.keys, v.bytes-old
	if old > 0 {
		keys--
	}
	forget := false
	if text != nil {
		keys++
		size += int64(len(valueKey(service, serviceKey, key)) + valueHead + len(*text))
		if err := v.limit(keys, size, "store "+service+"/"+serviceKey+"/"+key); err != nil {
			return err
		}
	} else {
		if old == 0 {
			return nil
		}
		if forget, err = v.isLast(service, serviceKey, key); err != nil {
			return err
		}
	}
	if err := v.put(service, serviceKey, key, text, forget); err != nil {
		return err
	}
	v.keys, v.bytes = keys, size
	return nil
}

// limit reports that there would be too many key-values. Changes that make them fewer or
// smaller are always possible.
func (v *Values) limit(keys int, size int64, what string) error {
	switch {
	case keys > v.maxKeys && keys > v.keys:
		return &store.LimitError{Limit: "metadata keys", Max: int64(v.maxKeys), Need: int64(keys), What: what + "; delete keys that nobody reads"}
	case size > v.maxBytes && size > v.bytes:
		return &store.LimitError{Limit: "bytes of metadata", Max: v.maxBytes, Need: size, What: what + "; delete keys that nobody reads"}
	}
	return nil
}

// count counts what is stored, once. v.mu must be held.
func (v *Values) count(ctx context.Context) error {
	if v.known {
		return nil
	}
	var keys int
	var size int64
	err := Scan(v.catalogue.db, TableValue, func(key, value []byte) error {
		if service, _, _ := cutName(key); !store.OwnService(service) {
			keys++
			size += int64(1 + len(key) + len(value)) // 1 for the table
		}
		return ctx.Err()
	})
	if err != nil {
		return fmt.Errorf("count metadata: %w", err)
	}
	v.known, v.keys, v.bytes = true, keys, size
	return nil
}

// valueBytes is the size of a key and its text, 0 if it is not there.
func (v *Values) valueBytes(service, serviceKey, key string) (int64, error) {
	k := valueKey(service, serviceKey, key)
	raw, closer, err := v.catalogue.db.Get(k)
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
func (v *Values) isLast(service, serviceKey, key string) (last bool, err error) {
	base := appendName(appendName([]byte{TableValue}, service), serviceKey)
	it, err := v.catalogue.db.NewIter(&pebble.IterOptions{LowerBound: base, UpperBound: after(base)})
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
func (v *Values) put(service, serviceKey, key string, text *string, forget bool) error {
	b := v.catalogue.db.NewBatch()
	defer b.Close()
	now := binary.BigEndian.AppendUint64(make([]byte, 0, valueHead), uint64(v.options.Now().UnixMilli()))
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
	return v.catalogue.apply(b, "store "+service+"/"+serviceKey+"/"+key)
}

// ServiceKeys implements store.KeyValues.
func (v *Values) ServiceKeys(ctx context.Context, service string) iter.Seq2[string, error] {
	base := appendName([]byte{TableValue}, service)
	return v.list(ctx, base, base, func(rest []byte) (string, int, bool) {
		name, behind, ok := cutName(rest)
		return name, len(rest) - len(behind), ok
	})
}

// Keys implements store.KeyValues.
func (v *Values) Keys(ctx context.Context, service, serviceKey, prefix string) iter.Seq2[string, error] {
	base := appendName(appendName([]byte{TableValue}, service), serviceKey)
	return v.list(ctx, append(base[:len(base):len(base)], prefix...), base, func(rest []byte) (string, int, bool) {
		return string(rest), len(rest), true
	})
}

// listPage is how many names are read at once. Between pages a list holds no resources of
// the catalogue, because its reader may be slow.
const listPage = 1000

// list yields the names that name cuts from the keys that begin with prefix, without base. size is
// how much of a key the name takes; further keys with the same beginning are skipped.
func (v *Values) list(ctx context.Context, prefix, base []byte, name func(rest []byte) (text string, size int, ok bool)) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		end := after(prefix)
		for from := prefix; from != nil; {
			page, next, err := v.page(ctx, from, end, base, name)
			for _, text := range page {
				if !yield(text, nil) {
					return
				}
			}
			if err != nil {
				yield("", fmt.Errorf("list keys: %w", err))
			}
			from = next
		}
	}
}

// page reads at most listPage names of keys in [from, end). next is where the
// rest begins, nil at the end and after an error.
func (v *Values) page(ctx context.Context, from, end, base []byte, name func(rest []byte) (string, int, bool)) (page []string, next []byte, err error) {
	if err := v.options.Check(ctx); err != nil {
		return nil, nil, err
	}
	it, err := v.catalogue.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: end})
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
	last := len(prefix) - 1
	for prefix[last] == 255 {
		last--
	}
	end := bytes.Clone(prefix[:last+1])
	end[last]++
	return end
}

// Modified implements store.KeyValues.
func (v *Values) Modified(ctx context.Context, service, serviceKey string) (time.Time, error) {
	if err := v.options.Check(ctx); err != nil {
		return time.Time{}, err
	}
	raw, closer, err := v.catalogue.db.Get(modifiedKey(service, serviceKey))
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

// CheckValue reports what is wrong with a row of the table of key-values.
func CheckValue(key, value []byte) error {
	_, rest, ok := cutName(key)
	if ok {
		_, _, ok = cutName(rest)
	}
	if !ok {
		return fmt.Errorf("key-value with key %x", key)
	}
	if len(value) < valueHead {
		return fmt.Errorf("key-value %q has %d bytes, expected %d or more", key, len(value), valueHead)
	}
	return nil
}

// CheckModified does the same for the table of their modification times.
func CheckModified(key, value []byte) error {
	if len(value) != valueHead {
		return fmt.Errorf("modification time of %q has %d bytes, expected %d", key, len(value), valueHead)
	}
	return nil
}
