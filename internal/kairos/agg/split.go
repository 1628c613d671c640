package agg

import (
	"encoding/binary"

	"varve/internal/query"
)

// A part is a group that splitters have made from a stream.
type part struct {
	labels []Label
	points pointBuffer
}

// splitStream distributes a stream to parts, in the order in which combinations of
// numbers first occur. It buffers all points.
func splitStream(in Stream, by []Splitter, env *Env) ([]*part, error) {
	var parts []*part
	index := map[string]*part{}
	var key []byte
	numbers := make([]int64, len(by))
	var p Point
	for {
		ok, err := in.Next(&p)
		if !ok || err != nil {
			return parts, err
		}
		key = key[:0]
		for i, b := range by {
			if numbers[i], err = b.number(env, &p); err != nil {
				return nil, err
			}
			key = binary.AppendVarint(key, numbers[i])
		}
		to := index[string(key)]
		if to == nil {
			if err := env.lease.Take(partBytes + int64(len(by))*labelBytes + int64(len(key))); err != nil {
				return nil, err
			}
			to = newPart(by, numbers, env.lease)
			index[string(key)] = to
			parts = append(parts, to)
		}
		if err := to.points.add(&p); err != nil {
			return nil, err
		}
	}
}

// Memory of a part without its points, and of each of its labels.
const (
	partBytes  = 512
	labelBytes = 56
)

func newPart(by []Splitter, numbers []int64, l *query.Lease) *part {
	p := &part{points: pointBuffer{lease: l}}
	for i, b := range by {
		p.labels = append(p.labels, Label{By: b, Number: numbers[i]})
	}
	return p
}
