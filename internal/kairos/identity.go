package kairos

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"varve/internal/ingest/jsontext"
)

// An identity identifies the answer that a metric of a request asks for. Two metrics
// have the same identity if everything that an answer depends on is written alike:
// times, zone and every member of the metric. Relative times count as written.
// cache_time is not part of it.
type identity [sha256.Size]byte

// identityOf returns the identity of a metric of the request top.
func identityOf(top, metric *value) identity {
	var text []byte
	for _, name := range []string{"start_absolute", "start_relative", "end_absolute", "end_relative", "time_zone"} {
		if v := top.member(name); !absent(v) {
			text = append(append(text, name...), ':')
			text = v.appendJSON(text, true)
		}
	}
	return sha256.Sum256(metric.appendJSON(text, true))
}

// hash is the identity as KairosDB's admin endpoints show it: hex digits.
func (id identity) hash() string { return hex.EncodeToString(id[:hashLen/2]) }

const hashLen = 32

// appendJSON formats v as strict JSON, with members sorted by name or in their order.
func (v *value) appendJSON(dst []byte, sorted bool) []byte {
	switch v.kind {
	case jsontext.Object:
		return v.appendMembers(dst, sorted)
	case jsontext.Array:
		dst = append(dst, '[')
		for i := range v.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = v.items[i].appendJSON(dst, sorted)
		}
		return append(dst, ']')
	case jsontext.Null:
		return append(dst, "null"...)
	case jsontext.True:
		return append(dst, "true"...)
	case jsontext.False:
		return append(dst, "false"...)
	case jsontext.Number:
		if json.Valid([]byte(v.text)) {
			return append(dst, v.text...)
		}
	}
	return appendText(dst, v.text)
}

func (v *value) appendMembers(dst []byte, sorted bool) []byte {
	members := v.members
	if sorted {
		members = slices.Clone(members)
		slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	}
	dst = append(dst, '{')
	for i := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendText(dst, members[i].name), ':')
		dst = members[i].value.appendJSON(dst, sorted)
	}
	return append(dst, '}')
}
