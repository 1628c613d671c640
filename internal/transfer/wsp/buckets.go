package wsp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"math"

	"varve/internal/model"
)

// A bucket is what a policy has made of samples. On a tape it has the bytes of the
// aggregate without its sketch, between two words and one.
type bucket struct {
	startMS, stepMS int64
	model.Aggregate
	percentile float64 // of the policy, if its method is one; late samples do not count for it
}

const bucketBytes = 3*8 + model.AggregateSize

// end is the first instant behind the bucket, in ms.
func (b *bucket) end() int64 { return b.startMS + b.stepMS }

func (b *bucket) append(to []byte) []byte {
	to = binary.LittleEndian.AppendUint64(to, uint64(b.startMS))
	to = binary.LittleEndian.AppendUint64(to, uint64(b.stepMS))
	plain := b.Aggregate
	plain.Sketch = ""
	return binary.LittleEndian.AppendUint64(plain.Append(to), math.Float64bits(b.percentile))
}

// merge adds another bucket.
func (b *bucket) merge(o bucket) {
	if o.Count > b.Count {
		b.percentile = o.percentile
	}
	b.Aggregate.Merge(o.Aggregate)
}

// A bucketRun is read bucket by bucket.
type bucketRun struct {
	r    *bufio.Reader
	next bucket
	more bool
}

func (r *bucketRun) advance() error {
	var b [bucketBytes]byte
	_, err := io.ReadFull(r.r, b[:])
	if r.more = err == nil; !r.more {
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	r.next = bucket{startMS: int64(word(0)), stepMS: int64(word(8)), percentile: math.Float64frombits(word(bucketBytes - 8))}
	r.next.Aggregate, err = model.ParsePlain(b[16 : bucketBytes-8])
	return err
}

// A bucketReader gives the buckets of all runs of a tape by their beginnings, of two with
// the same one the wider first.
type bucketReader struct{ runs []*bucketRun }

func readBuckets(t *tape) (*bucketReader, error) {
	files, err := t.runs()
	if err != nil {
		return nil, err
	}
	r := &bucketReader{}
	for _, file := range files {
		run := &bucketRun{r: file}
		if err := run.advance(); err != nil {
			return nil, err
		}
		r.runs = append(r.runs, run)
	}
	return r, nil
}

// next takes the next bucket that begins before a time, nil if there is none.
func (r *bucketReader) next(beforeMS int64) (*bucket, error) {
	var first *bucketRun
	for _, run := range r.runs {
		if run.more && (first == nil || run.next.startMS < first.next.startMS || run.next.startMS == first.next.startMS && run.next.stepMS > first.next.stepMS) {
			first = run
		}
	}
	if first == nil || first.next.startMS >= beforeMS {
		return nil, nil
	}
	b := first.next
	return &b, first.advance()
}
