package model

import (
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Tag is one name and value of a series. Both are non-empty UTF-8.
type Tag struct{ Name, Value string }

// Tags is an immutable set of tags, sorted by name as Java sorts strings. It is stored
// as one string (the tags part of a series key): a million series need no slice
// headers, and == compares sets. The zero value has no tags.
type Tags struct{ enc string }

// NewTags sorts tags. A name that occurs twice is an error.
func NewTags(tags ...Tag) (Tags, error) {
	if len(tags) == 0 {
		return Tags{}, nil
	}
	sorted := slices.Clone(tags)
	SortTags(sorted)
	for i := 1; i < len(sorted); i++ {
		if sorted[i].Name == sorted[i-1].Name {
			return Tags{}, fmt.Errorf("tag %q occurs twice", sorted[i].Name)
		}
	}
	return Tags{enc: string(AppendTags(nil, sorted))}, nil
}

// MustTags is NewTags of alternating names and values, for tests and
// constants. It panics on an odd count or a repeated name.
func MustTags(namesAndValues ...string) Tags {
	if len(namesAndValues)%2 != 0 {
		panic("model.MustTags: odd number of arguments")
	}
	tags := make([]Tag, 0, len(namesAndValues)/2)
	for i := 0; i < len(namesAndValues); i += 2 {
		tags = append(tags, Tag{namesAndValues[i], namesAndValues[i+1]})
	}
	t, err := NewTags(tags...)
	if err != nil {
		panic("model.MustTags: " + err.Error())
	}
	return t
}

// SortTags orders tags by name, in place.
func SortTags(tags []Tag) {
	slices.SortStableFunc(tags, func(a, b Tag) int { return CompareNames(a.Name, b.Name) })
}

// Matchers returns a matcher for each tag. Series with more tags match them too.
func Matchers(tags []Tag) []Matcher {
	matchers := make([]Matcher, 0, len(tags))
	for _, t := range tags {
		matchers = append(matchers, Matcher{Tag: t.Name, Values: []string{t.Value}})
	}
	return matchers
}

// AppendTags appends the key form of tags, which must be sorted and distinct.
func AppendTags(dst []byte, tags []Tag) []byte {
	for _, t := range tags {
		dst = binary.AppendUvarint(dst, uint64(len(t.Name)))
		dst = append(dst, t.Name...)
		dst = binary.AppendUvarint(dst, uint64(len(t.Value)))
		dst = append(dst, t.Value...)
	}
	return dst
}

// All yields name and value in order. The strings share the set's memory.
func (t Tags) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for rest := t.enc; rest != ""; {
			var name, value string
			name, rest = cut(rest)
			value, rest = cut(rest)
			if !yield(name, value) {
				return
			}
		}
	}
}

// Get returns the value of the tag called name.
func (t Tags) Get(name string) (string, bool) {
	for n, v := range t.All() {
		if n == name {
			return v, true
		}
	}
	return "", false
}

// Len returns the number of tags.
func (t Tags) Len() int {
	n := 0
	for range t.All() {
		n++
	}
	return n
}

// Slice returns the tags in order.
func (t Tags) Slice() []Tag {
	var tags []Tag
	for n, v := range t.All() {
		tags = append(tags, Tag{n, v})
	}
	return tags
}

// String renders the set for people, for example {dc=lga,host=a}.
func (t Tags) String() string {
	var b strings.Builder
	b.WriteByte('{')
	for n, v := range t.All() {
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.WriteString(n + "=" + v)
	}
	b.WriteByte('}')
	return b.String()
}

// cut splits a length-prefixed string off s, which is known to be well formed.
func cut(s string) (head, rest string) {
	n, w := uvarint(s)
	return s[w : w+int(n)], s[w+int(n):]
}

// uvarint is binary.Uvarint on a string. w is 0 if s is cut off, if the number
// overflows, or if its encoding is longer than necessary: a series has exactly one key.
func uvarint(s string) (v uint64, w int) {
	var shift uint
	for i := 0; i < len(s) && i < binary.MaxVarintLen64; i++ {
		b := s[i]
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			if i == binary.MaxVarintLen64-1 && b > 1 || i > 0 && b == 0 {
				return 0, 0
			}
			return v, i + 1
		}
		shift += 7
	}
	return 0, 0
}

// CompareNames orders metric names, tag names and tag values as Java's
// String.compareTo does: by UTF-16 code unit. That is byte order of UTF-8
// except that supplementary characters (lead byte F0 and above) come before
// U+E000..U+FFFF (lead bytes EE and EF).
func CompareNames(a, b string) int {
	n := min(len(a), len(b))
	i := 0
	for i < n && a[i] == b[i] {
		i++
	}
	if i == n {
		return len(a) - len(b)
	}
	x, y := a[i], b[i]
	if x >= 0xee && y >= 0xee && (x >= 0xf0) != (y >= 0xf0) {
		return int(y) - int(x)
	}
	return int(x) - int(y)
}
