package model

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Series identifies one stream of samples.
type Series struct {
	Metric string
	Tags   Tags
	Type   Type
}

// AppendKey appends the canonical key of s.
func (s Series) AppendKey(dst []byte) []byte {
	dst = AppendKeyHead(dst, s.Type, s.Metric)
	return append(dst, s.Tags.enc...)
}

// AppendKeyHead appends the part of a series key before the tags; AppendTags
// on the result completes the key. It lets ingest build a key without a Series.
func AppendKeyHead(dst []byte, t Type, metric string) []byte {
	k := t.Kind()
	dst = append(dst, byte(k))
	if k == Custom {
		dst = binary.AppendUvarint(dst, uint64(len(t)))
		dst = append(dst, t...)
	}
	dst = binary.AppendUvarint(dst, uint64(len(metric)))
	return append(dst, metric...)
}

// ParseKey is the inverse of AppendKey. The result shares key's memory. A key that
// AppendKey could not have written is an error.
func ParseKey(key string) (Series, error) {
	bad := func(what string) (Series, error) {
		return Series{}, fmt.Errorf("series key %q: %s", key, what)
	}
	if key == "" {
		return bad("empty")
	}
	kind, rest := Kind(key[0]), key[1:]
	if !kind.Valid() || kind == AggregateKind {
		return bad("unknown kind")
	}
	s := Series{Type: TypeOf(kind)}
	var ok bool
	if kind == Custom {
		var name string
		if name, rest, ok = cutChecked(rest); !ok {
			return bad("cut off in the type name")
		}
		s.Type = Type(name)
		if s.Type.Kind() != Custom {
			return bad("built-in type written as custom")
		}
	}
	if s.Metric, rest, ok = cutChecked(rest); !ok {
		return bad("cut off in the metric name")
	}
	s.Tags = Tags{enc: rest}
	for first, previous := true, ""; rest != ""; first = false {
		var name string
		if name, rest, ok = cutChecked(rest); !ok {
			return bad("cut off in a tag name")
		}
		if !first && CompareNames(previous, name) >= 0 {
			return bad("tags out of order")
		}
		if _, rest, ok = cutChecked(rest); !ok {
			return bad("cut off in a tag value")
		}
		previous = name
	}
	return s, nil
}

// TrustKey is ParseKey without its checks, for keys that have passed them. For other
// keys it panics or returns nonsense.
func TrustKey(key string) Series {
	s, rest := Series{}, key[1:]
	if kind := Kind(key[0]); kind == Custom {
		var name string
		name, rest = cut(rest)
		s.Type = Type(name)
	} else {
		s.Type = TypeOf(kind)
	}
	s.Metric, s.Tags.enc = cut(rest)
	return s
}

func cutChecked(s string) (head, rest string, ok bool) {
	n, w := uvarint(s)
	if w == 0 || n > uint64(len(s)-w) {
		return "", "", false
	}
	return s[w : w+int(n)], s[w+int(n):], true
}

// String renders s for people, for example load{host=a} (kairos_long).
func (s Series) String() string {
	return s.Metric + s.Tags.String() + " (" + string(s.Type) + ")"
}

// Compare orders series by metric, then tags, then type; names as Java does.
func (s Series) Compare(o Series) int {
	if c := CompareNames(s.Metric, o.Metric); c != 0 {
		return c
	}
	if c := s.Tags.Compare(o.Tags); c != 0 {
		return c
	}
	return strings.Compare(string(s.Type), string(o.Type))
}

// Compare orders tag sets tag by tag: name, then value; a set that is a prefix
// of another comes first.
func (t Tags) Compare(o Tags) int {
	a, b := t.enc, o.enc
	for a != "" && b != "" {
		var x, y string
		x, a = cut(a)
		y, b = cut(b)
		if c := CompareNames(x, y); c != 0 {
			return c
		}
	}
	return len(a) - len(b)
}
