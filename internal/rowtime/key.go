package rowtime

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"strings"

	"varve/internal/model"
)

// TypeLegacy is the type of rows written before KairosDB 0.9.4. Their keys
// name no type, and each column says whether its value is a long or a double.
// KairosDB decodes them only if found through row_key_index: never write one.
const TypeLegacy model.Type = "kairos_legacy"

const (
	// MaxKeyBytes is the longest partition key that Cassandra stores.
	MaxKeyBytes = 65535

	// MaxTypeBytes is the longest type name: KairosDB reads its length as a
	// signed byte.
	MaxTypeBytes = 127
)

// A Key names a row: one series in one span of time.
type Key struct {
	Metric    string
	RowTimeMS int64
	Type      model.Type
	Tags      model.Tags
}

// Append appends the bytes of k. It fails if they or the type's name are too
// long, and then returns dst unchanged.
func (k Key) Append(dst []byte) ([]byte, error) {
	if len(k.Type) > MaxTypeBytes {
		return dst, fmt.Errorf("row key of %q: type name of %d bytes is longer than %d", k.Metric, len(k.Type), MaxTypeBytes)
	}
	start := len(dst)
	key := append(dst, k.Metric...)
	key = append(key, 0)
	key = binary.BigEndian.AppendUint64(key, uint64(k.RowTimeMS))
	if k.Type != TypeLegacy {
		key = append(key, 0, byte(len(k.Type)))
		key = append(key, k.Type...)
	}
	for name, value := range k.Tags.All() {
		key = append(appendEscaped(key, name, ':'), '=')
		key = append(appendEscaped(key, value, '='), ':')
	}
	if n := len(key) - start; n > MaxKeyBytes {
		return dst, fmt.Errorf("row key of %q: %d bytes are more than the %d of a Cassandra key", k.Metric, n, MaxKeyBytes)
	}
	return key, nil
}

// SeriesBytes returns the length of the longest key that a series has in a
// keyspace of KairosDB and Varve: of its rows, and in each index table. A series
// for which it is more than MaxKeyBytes cannot be stored there.
func SeriesBytes(metric string, t model.Type, tags iter.Seq2[string, string]) int {
	rowKey := len(metric) + 1 + 8 + 2 + len(t)
	// Cassandra counts all clustering columns of a row together: data_type,
	// tag_collection_hash, and the map of tags, which begins with a count.
	clustering, longest := len(t)+4+4, 0
	for name, value := range tags {
		rowKey += len(name) + 1 + len(value) + 1 + escapes(name) + escapes(value)
		clustering += 8 + len(name) + len(value)
		longest = max(longest, len(name)+len(value))
	}
	return max(rowKey, clustering, len(metric)+longest+indexKeyBytes)
}

// indexKeyBytes is more than a key of an index table adds to the names in it.
const indexKeyBytes = 64

func escapes(s string) int { return strings.Count(s, ":") + strings.Count(s, "=") }

// AppendIndexBound appends a bound of a slice of row_key_index: of the keys
// from the row at one time, inclusive, to that at another, exclusive (end).
func AppendIndexBound(dst []byte, metric string, rowTimeMS int64, end bool) []byte {
	marker := byte(0)
	if end {
		marker = 0xff
	}
	dst = append(append(dst, metric...), 0)
	dst = binary.BigEndian.AppendUint64(dst, uint64(rowTimeMS))
	return append(dst, marker, 0)
}

// ParseKey reads the bytes of a key; the result shares their memory. The metric
// name ends at the first zero byte. So a name with a zero byte, which KairosDB
// accepts, is not read back correctly. Tags may be in any order; a repeated
// name is an error, and so are keys that KairosDB cannot read: a legacy key
// without tags, a type name of 128 bytes or more.
func ParseKey(key string) (Key, error) {
	metric, rest, ok := strings.Cut(key, "\x00")
	if !ok {
		return Key{}, keyError(key, errors.New("no zero byte after the metric name"))
	}
	if len(rest) < 9 {
		return Key{}, keyError(key, errors.New("cut off in the row time or before the type"))
	}
	k := Key{Metric: metric, RowTimeMS: int64(binary.BigEndian.Uint64([]byte(rest[:8]))), Type: TypeLegacy}
	rest = rest[8:]
	if rest[0] == 0 {
		if len(rest) < 2 || int(rest[1]) > len(rest)-2 || rest[1] > MaxTypeBytes {
			return Key{}, keyError(key, errors.New("type name is cut off or longer than 127 bytes"))
		}
		n := 2 + int(rest[1])
		k.Type, rest = model.Type(rest[2:n]), rest[n:]
	}
	var err error
	if k.Tags, err = parseTags(rest); err != nil {
		return Key{}, keyError(key, err)
	}
	return k, nil
}

// Ambiguous reports whether a key that ParseKey reads may belong to another row, of a metric whose name
// has a zero byte: the key is also a valid key with a type if the name ends at a later zero byte. A key
// of names without zero bytes is not ambiguous.
func Ambiguous(key string) bool {
	_, rest, _ := strings.Cut(key, "\x00")
	for {
		var ok bool
		if _, rest, ok = strings.Cut(rest, "\x00"); !ok || len(rest) < 10 {
			return false
		}
		end := 10 + int(rest[9]) // of the type, after row time, marker and length
		if rest[8] != 0 || end == 10 || end > 10+MaxTypeBytes || end > len(rest) {
			continue
		}
		if _, err := parseTags(rest[end:]); err == nil {
			return true
		}
	}
}

func keyError(key string, err error) error { return fmt.Errorf("row key %x: %w", key, err) }

// parseTags reads name=value:name=value: with the escapes of appendEscaped.
func parseTags(s string) (model.Tags, error) {
	var tags []model.Tag
	for s != "" {
		var t model.Tag
		var ok bool
		if t.Name, s, ok = cutEscaped(s, ':', '='); !ok {
			return model.Tags{}, errors.New("cut off in a tag name")
		}
		if t.Value, s, ok = cutEscaped(s, '=', ':'); !ok {
			return model.Tags{}, errors.New("cut off in a tag value")
		}
		tags = append(tags, t)
	}
	return model.NewTags(tags...)
}

// appendEscaped appends s with escape before each ':' and '='. The escape is
// ':' in names, which '=' ends, and '=' in values, which ':' ends.
func appendEscaped(dst []byte, s string, escape byte) []byte {
	for i := range len(s) {
		if s[i] == ':' || s[i] == '=' {
			dst = append(dst, escape)
		}
		dst = append(dst, s[i])
	}
	return dst
}

// cutEscaped splits s at the first end that is not escaped, and removes the
// escapes before it.
func cutEscaped(s string, escape, end byte) (head, rest string, ok bool) {
	var plain []byte // head without escapes, if it had any
	from := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case end:
			if plain == nil {
				return s[:i], s[i+1:], true
			}
			return string(append(plain, s[from:i]...)), s[i+1:], true
		case escape:
			plain = append(plain, s[from:i]...)
			from, i = i+1, i+1 // the next byte is literal
			if plain == nil {
				plain = []byte{}
			}
		}
	}
	return "", "", false
}
