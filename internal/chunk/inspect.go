package chunk

import (
	"fmt"
	"strconv"
	"strings"

	"varve/internal/model"
)

// CodecName describes how e was written, for example "times=shared
// values=decimal2/delta:8+3". A number after a colon is the bits of a packed number,
// one after a plus the number of outliers. CodecName decodes the whole entry, and says
// "damaged" where that fails.
func (e *Entry) CodecName() string {
	var d Decoder
	r := reader{b: e.page[:e.end], pos: e.body}
	parts := []string{"times=" + nameTimes(&d, &r, e)}
	switch e.flags & flagTTL {
	case ttlSame, ttlConst:
		parts = append(parts, "ttl=const")
	case ttlColumn:
		parts = append(parts, "ttl="+nameInts(r))
		d.ints(&r, make([]uint64, e.Count))
	}
	if name := nameValues(r, e.Kind); name != "" {
		parts = append(parts, "values="+name)
	}
	if r.err != nil {
		parts = append(parts, "damaged")
	}
	return strings.Join(parts, " ")
}

// nameTimes advances r past the times.
func nameTimes(d *Decoder, r *reader, e *Entry) string {
	switch e.flags & flagTimes {
	case timesShared:
		return "shared"
	case timesEarlier:
		return "earlier"
	case timesRegular:
		return "regular"
	}
	peek := *r
	name := "ints/"
	if peek.u8() == timeLinear {
		name = fmt.Sprintf("linear%d/", peek.uvarint())
	}
	name += nameInts(peek)
	d.codedTimes(r, nil, e.Count, e.FirstMS, e.LastMS)
	return name
}

func nameInts(r reader) string {
	control := r.u8()
	mode := control & intModeMask
	if int(mode) >= len(intModeNames) {
		return "damaged"
	}
	name := intModeNames[mode]
	if mode == intConst || mode == intDeltaConst {
		return name
	}
	name += ":" + strconv.Itoa(int(r.u8()))
	if control&intExceptions != 0 {
		for range mode { // first, first difference, base
			r.uvarint()
		}
		name += "+" + strconv.FormatUint(r.uvarint(), 10)
	}
	if control&intHuffman != 0 {
		name += "/huffman"
	}
	return name
}

var intModeNames = [...]string{
	intConst: "const", intFrame: "frame", intDelta: "delta", intDelta2: "delta2", intDeltaConst: "deltaconst",
}

// nameValues takes a copy of the reader, since it reads only the control bytes.
func nameValues(r reader, kind model.Kind) string {
	switch {
	case kind == model.Null:
		return ""
	case kind == model.Long:
		return nameInts(r)
	case kind == model.Double:
		return nameDoubles(r)
	}
	switch tag := r.u8(); tag {
	case bytesPlain:
		return "plain"
	case bytesPlain | bytesCompressed:
		return "zstd"
	case bytesDictionary:
		return fmt.Sprintf("dictionary%d", r.uvarint())
	case bytesComplex:
		return "complex/" + nameDoubles(r)
	case bytesAggregate:
		return "aggregate/" + nameDoubles(r)
	case bytesSketched:
		return "sketched/" + nameDoubles(r)
	}
	return "damaged"
}

func nameDoubles(r reader) string {
	tag := r.u8()
	switch tag {
	case doubleConst:
		return "const"
	case doubleRaw:
		return "raw"
	case doubleSplit:
		return fmt.Sprintf("split%d", r.uvarint())
	}
	name := fmt.Sprintf("decimal%d", tag&doubleExponentMask)
	if tag&doubleExceptions == 0 {
		return name + "/" + nameInts(r)
	}
	n := r.uvarint()
	name += fmt.Sprintf("+%d/", n)
	for range n {
		r.uvarint()
		if r.u64(); r.err != nil {
			return "damaged"
		}
	}
	return name + nameInts(r)
}
