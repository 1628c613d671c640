package carbon

import (
	"bytes"
	"math"

	"varve/internal/ingest"
)

var (
	faultItem      = ingest.Faultf(ingest.BadSyntax, "an item must be (path, (time, value))")
	faultItemTime  = ingest.Faultf(ingest.BadTime, "time must be a number of seconds since 1970, or -1 for now")
	faultItemValue = ingest.Faultf(ingest.BadValue, "value must be a number, or a text that is one")
)

// A point is an item of a pickle, or a line.
type point struct {
	path  []byte
	value float64
	ms    int64
}

// point reads (path, (time, value)). Times and values may be texts, as carbon takes
// them.
func (p *pickle) point(item value, nowMS int64) (point, *ingest.Fault) {
	outer := p.items(item, 2)
	if outer == nil || p.text(outer[0]) == nil {
		return point{}, faultItem
	}
	inner := p.items(outer[1], 2)
	if inner == nil {
		return point{}, faultItem
	}
	pt := point{path: p.text(outer[0])}
	seconds, ok := p.number(inner[0])
	if pt.ms, ok = timeOf(seconds, nowMS, ok); !ok {
		return pt, faultItemTime
	}
	if pt.value, ok = p.number(inner[1]); !ok {
		return pt, faultItemValue
	}
	if math.IsNaN(pt.value) || math.IsInf(pt.value, 0) {
		return pt, faultFinite
	}
	return pt, nil
}

// number is a number, or a text that is one. The length is checked first: all items of a pickle may
// share one long text.
func (p *pickle) number(v value) (float64, bool) {
	if v.kind == number {
		return v.f, true
	}
	if v.n > maxNumber {
		return 0, false
	}
	return parseFloat(bytes.TrimSpace(p.text(v)))
}
