package kairosjson

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"math"
	"strings"

	"varve/internal/datatype"
	"varve/internal/ingest"
	"varve/internal/ingest/jsontext"
	"varve/internal/model"
)

// RawType begins the type of points whose values are given as the base64 of
// their stored bytes, for values that JSON cannot hold: base64:acme_histogram.
// What follows is the stored type. Only Lines knows it.
const RawType = "base64:"

// A Line is the outcome of a line of an import.
type Line struct {
	Points int      // stored
	Faults []string // in order, as the sender of a request would be told
	Held   bool     // new_series_per_second refused a series: store the line again
}

// Lines stores JSON that comes line by line: in each line a metric object or an
// array of them. Not safe for concurrent use.
type Lines struct {
	p       *parser
	results []Line
	left    int // of maxTold, since the last Store
}

// NewLines makes a Lines for a sender at remote. It waits for room in the
// pipeline as long as its context lasts.
func NewLines(p *ingest.Pipeline, proto *ingest.Protocol, remote string) *Lines {
	l := &Lines{p: newParser(p, p.NewWriter(proto, remote, 0), datatype.All())}
	l.p.raw = true
	return l
}

// cut is how far the lines are stored.
type cut struct {
	line   int
	begun  bool // progress is inside of line
	before int  // points of the line in earlier blocks
	left   int  // bytes of faults that may still be told
	progress
}

// Store stores lines and returns the outcome of each; the result is valid until the next call. It
// returns when they are durable. After an error some may be stored; storing them again is harmless.
// A few bytes of a line can be a fault of a hundred, so the faults of all lines together take at most
// maxTold. Beyond that, they are only counted.
func (l *Lines) Store(ctx context.Context, lines [][]byte) ([]Line, error) {
	l.left = maxTold
	return l.store(ctx, lines)
}

// Again is Store for a line of the last Store that was held. Its faults count with those of that Store.
func (l *Lines) Again(ctx context.Context, line []byte) (Line, error) {
	left := l.left
	results, err := l.store(ctx, [][]byte{line})
	if err != nil {
		return Line{}, err
	}
	if results[0].Held { // the next outcome replaces this one
		l.left = left
	}
	return results[0], nil
}

func (l *Lines) store(ctx context.Context, lines [][]byte) ([]Line, error) {
	defer l.p.reset(nil) // keeps nothing of the lines
	l.results = append(l.results[:0], make([]Line, len(lines))...)
	most := 0
	for _, line := range lines {
		most += len(line)/6 + 1 // the shortest point has 5 bytes, and a comma
	}
	c := cut{left: l.left}
	for c.line < len(lines) {
		from := c
		_, err := l.p.w.Ingest(ctx, min(ingest.BlockSamples, most), func() error {
			c = from
			return l.block(&c, lines)
		})
		if err != nil {
			return nil, err
		}
	}
	l.left = c.left
	return l.results, nil
}

// block parses lines until the block is full.
func (l *Lines) block(c *cut, lines [][]byte) error {
	p := l.p
	for c.line < len(lines) && !p.w.Full() {
		p.most = min(maxAnswer, c.left)
		if c.begun {
			p.progress = c.progress
		} else {
			p.reset(lines[c.line])
		}
		points := len(p.w.Batch().Samples)
		if err := p.block(); err != nil {
			return err
		}
		c.before += len(p.w.Batch().Samples) - points
		if c.begun = !p.done(); c.begun {
			c.progress = p.progress
			return nil
		}
		l.results[c.line] = Line{Points: c.before, Held: p.held > 0}
		if p.messages > 0 || p.untold > 0 {
			l.results[c.line].Faults = append([]string(nil), p.answer()...)
		}
		c.left -= min(p.answered, c.left)
		c.line, c.before = c.line+1, 0
	}
	return nil
}

// storeRaw stores a value from the base64 of its bytes.
func (p *parser) storeRaw(where point, ms int64, v jsontext.Token, typ model.Type) error {
	typ = model.Type(strings.Clone(string(typ)))
	text, ok := p.bytes(v)
	value, err := base64.StdEncoding.DecodeString(string(text))
	if v.Kind != jsontext.String || !ok || err != nil {
		return p.refusePoint(where, ingest.BadValue, "value must be base64.")
	}
	ref, err := p.resolveTyped(typ)
	if err != nil {
		return err
	}
	switch kind := typ.Kind(); {
	case kind.Fixed() && len(value) != 8:
		return p.refusePoint(where, ingest.BadValue, "value must have 8 bytes.")
	case kind == model.Long:
		return p.added(where, p.w.AddLong(ref, ms, int64(binary.BigEndian.Uint64(value)), p.m.ttl))
	case kind == model.Double:
		bits := binary.BigEndian.Uint64(value)
		if bits == model.StaleMarker { // no reader would see the point
			bits = math.Float64bits(math.NaN())
		}
		return p.added(where, p.w.AddDouble(ref, ms, math.Float64frombits(bits), p.m.ttl))
	}
	return p.addValue(where, typ, ref, ms, value)
}
