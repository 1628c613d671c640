package cql

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"varve/internal/model"
	"varve/internal/store"
)

// UUID is a value of the types uuid and timeuuid.
type UUID = gocql.UUID

// TimeUUID returns a timeuuid of the present time that is unique among all processes.
func TimeUUID() UUID { return gocql.TimeUUID() }

// A TagMap binds and scans frozen<map<text,text>>. Bytes:
//
//	count i32, then per tag: length i32, name, length i32, value
//
// all big-endian. Tags are bound in the order of UTF-16 code units, as KairosDB does: servers
// before 3.0.28, 3.11.14 and 4.0.5 keep the client's order inside the clustering key. Later
// servers use the order of UTF-8 bytes, so scanned tags are sorted again.
type TagMap struct {
	Tags model.Tags
	Null bool // a scanned map was null; a null clustering column means that the row has static cells only
}

// MarshalCQL is called by the driver.
func (m TagMap) MarshalCQL(gocql.TypeInfo) ([]byte, error) {
	if m.Null {
		return nil, nil
	}
	return m.Append(nil), nil
}

// Append appends the bytes of the map.
func (m TagMap) Append(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	count := uint32(0)
	for name, value := range m.Tags.All() {
		dst = append(binary.BigEndian.AppendUint32(dst, uint32(len(name))), name...)
		dst = append(binary.BigEndian.AppendUint32(dst, uint32(len(value))), value...)
		count++
	}
	binary.BigEndian.PutUint32(dst[at:], count)
	return dst
}

// Size is the number of bytes that Append appends.
func (m TagMap) Size() int {
	n := 4
	for name, value := range m.Tags.All() {
		n += 8 + len(name) + len(value)
	}
	return n
}

// UnmarshalCQL is called by the driver.
func (m *TagMap) UnmarshalCQL(_ gocql.TypeInfo, data []byte) error {
	if data == nil {
		*m = TagMap{Null: true}
		return nil
	}
	tags, err := ParseTagMap(data)
	*m = TagMap{Tags: tags}
	return err
}

var errMapCut = errors.New("map of tags is cut off")

// ParseTagMap decodes the bytes of a map. The result does not refer to data. A map in the order of
// series keys, as nearly all are, needs one allocation, or two if it has more than half a kilobyte: it
// is converted to such a key, which is parsed.
func ParseTagMap(data []byte) (model.Tags, error) {
	if len(data) < 4 {
		return model.Tags{}, errMapCut
	}
	count, texts := int(int32(binary.BigEndian.Uint32(data))), data[4:]
	if count < 0 || count > len(texts)/8 {
		return model.Tags{}, errMapCut
	}
	var room [512]byte
	key, rest := append(room[:0], byte(model.Null), 0), texts // no metric
	for range 2 * count {
		text, after, ok := cutText(rest)
		if !ok {
			return model.Tags{}, errMapCut
		}
		key, rest = append(binary.AppendUvarint(key, uint64(len(text))), text...), after
	}
	if len(rest) != 0 {
		return model.Tags{}, fmt.Errorf("map of tags is followed by %d bytes", len(rest))
	}
	if s, err := model.ParseKey(string(key)); err == nil {
		return s.Tags, nil
	}
	tags := make([]model.Tag, count)
	for i := range tags {
		name, after, _ := cutText(texts)
		value, after, _ := cutText(after)
		tags[i], texts = model.Tag{Name: string(name), Value: string(value)}, after
	}
	return model.NewTags(tags...)
}

// cutText cuts the first text off the rest of a map.
func cutText(data []byte) (text, rest []byte, ok bool) {
	if len(data) < 4 {
		return nil, nil, false
	}
	n := int(int32(binary.BigEndian.Uint32(data)))
	if n < 0 || n > len(data)-4 {
		return nil, nil, false
	}
	return data[4 : 4+n], data[4+n:], true
}

// Raw scans the bytes of a value of any type without copying them. They are valid until the
// next page of rows is read, and are read-only. nil means null.
type Raw []byte

// UnmarshalCQL is called by the driver.
func (r *Raw) UnmarshalCQL(_ gocql.TypeInfo, data []byte) error {
	*r = data
	return nil
}

// MarshalCQL is called by the driver.
func (r Raw) MarshalCQL(gocql.TypeInfo) ([]byte, error) { return r, nil }

// Millis scans a timestamp, in milliseconds since the epoch, or null.
type Millis struct {
	MS   int64
	Null bool
}

// UnmarshalCQL is called by the driver.
func (m *Millis) UnmarshalCQL(_ gocql.TypeInfo, data []byte) error {
	switch len(data) {
	case 0:
		*m = Millis{Null: true}
	case 8:
		*m = Millis{MS: int64(binary.BigEndian.Uint64(data))}
	default:
		return fmt.Errorf("timestamp of %d bytes", len(data))
	}
	return nil
}

// checkTexts returns a *store.InputError if a text in args is not UTF-8. Such a text comes from a
// client; Cassandra stores none and refuses statements with one.
func checkTexts(args []any) error {
	for _, a := range args {
		valid := true
		switch a := a.(type) {
		case string:
			valid = utf8.ValidString(a)
		case TagMap:
			for name, value := range a.Tags.All() {
				valid = valid && utf8.ValidString(name) && utf8.ValidString(value)
			}
		}
		if !valid {
			return &store.InputError{Reason: "a name or text of the request is not UTF-8, and Cassandra stores no others"}
		}
	}
	return nil
}

// sizeOf returns the approximate size of args in a frame.
func sizeOf(args []any) int {
	n := 0
	for _, a := range args {
		switch a := a.(type) {
		case []byte:
			n += len(a)
		case Raw:
			n += len(a)
		case *Raw:
			n += len(*a)
		case *[]byte:
			n += len(*a)
		case string:
			n += len(a)
		case *string:
			n += len(*a)
		case **string:
			if *a != nil {
				n += len(**a)
			}
		case TagMap:
			n += a.Size()
		case *TagMap:
			n += a.Size()
		case *gocql.UUID, gocql.UUID:
			n += 16
		}
		n += 12
	}
	return n
}
