package chunk

import (
	"slices"

	"varve/internal/model"
)

// DecodeAggregates sets dst to the aggregates of e, which must be of the kind
// AggregateKind. Of sums, minima, maxima and last values it decodes only those in
// needs: the other columns of dst stay empty. If sketches is not nil, its byte strings
// are set to the bytes of the sketches, empty if there is none. Times-to-live are
// ignored. After an error, a *FormatError, dst is empty.
func (d *Decoder) DecodeAggregates(e *Entry, needs model.StatSet, dst *model.Aggregates, sketches *model.Columns) error {
	r := reader{b: e.page[:e.end], pos: e.body}
	dst.Reset()
	if sketches != nil {
		sketches.Reset()
	}
	if e.Kind != model.AggregateKind {
		r.fail("aggregates among %s values", e.Kind)
	}
	if t := &e.times; t.mode == timesRegular {
		dst.StartMS = regularTimes(dst.StartMS, t.count, t.first, t.last)
	} else if r.err == nil {
		dst.StartMS = append(dst.StartMS, d.sharedTimes(&r, e)...)
	}
	if r.err == nil && e.flags&flagTTL == ttlColumn {
		skipInts(&r, e.Count)
	}
	if r.err == nil {
		d.aggregates(&r, e.Count, needs, dst, sketches)
	}
	if r.err != nil {
		dst.Reset()
	}
	return r.err
}

// aggregates reads a column of n aggregates, whose times are in dst.
func (d *Decoder) aggregates(r *reader, n int, needs model.StatSet, dst *model.Aggregates, sketches *model.Columns) {
	switch tag := r.u8(); tag {
	case bytesAggregate:
		d.words(r, n, needs, dst)
		if sketches != nil {
			lengths := resize(&d.numbers, n)
			clear(lengths)
			appendOffsets(sketches, lengths, 0)
		}
	case bytesSketched:
		if d.words(r, n, needs, dst); sketches != nil && r.err == nil {
			d.texts(r, r.u8(), sketches, n)
		}
	default:
		d.plain.Reset()
		if d.texts(r, tag, &d.plain, n); r.err == nil {
			parseAggregates(r, &d.plain, needs, dst, sketches)
		}
	}
}

// words reads what appendParts has written for aggregates.
func (d *Decoder) words(r *reader, n int, needs model.StatSet, dst *model.Aggregates) {
	double := func(stat model.StatSet, to *[]uint64) {
		switch {
		case r.err != nil:
		case needs&stat == 0:
			skipDoubles(r, n)
		default:
			*to = slices.Grow(*to, n)[:n]
			d.doubles(r, *to)
		}
	}
	whole := func(to *[]uint64) {
		*to = slices.Grow(*to, n)[:n]
		if r.err == nil {
			d.ints(r, *to)
		}
	}
	double(model.StatSum, &dst.Sum)
	whole(&dst.Count)
	double(model.StatMin, &dst.Min)
	double(model.StatMax, &dst.Max)
	double(model.StatLast, &dst.Last)
	whole(&dst.LastMS)
	if r.err != nil {
		return
	}
	for i, startMS := range dst.StartMS {
		dst.LastMS[i] += uint64(startMS)
		if int64(dst.Count[i]) < 0 {
			r.fail("aggregate of %d values", int64(dst.Count[i]))
			return
		}
	}
}

// parseAggregates parses values that were written as byte strings, because some of them
// are not aggregates.
func parseAggregates(r *reader, values *model.Columns, needs model.StatSet, dst *model.Aggregates, sketches *model.Columns) {
	times := dst.StartMS
	dst.StartMS = dst.StartMS[:0]
	for i, startMS := range times {
		b := values.Bytes(i)
		a, err := model.ParsePlain(b)
		if err != nil {
			r.fail("%v", err)
			return
		}
		dst.Add(startMS, a, needs)
		if sketches != nil {
			sketches.AppendBytes(startMS, b[model.AggregateSize:], 0)
		}
	}
}
