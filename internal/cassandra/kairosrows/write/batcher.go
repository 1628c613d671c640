package write

import (
	"encoding/binary"
	"unicode/utf8"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/model"
	"varve/internal/rowtime"
)

// Each sample has a write timestamp of its own: when it was acknowledged.
var (
	insertSample = &cql.Statement{Name: "insert_sample", KeyArgs: 1,
		Text: "INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?) USING TTL 0 AND TIMESTAMP ?"} // overrides the table's default
	insertSampleTTL = &cql.Statement{Name: "insert_sample_ttl", KeyArgs: 1,
		Text: "INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?) USING TTL ? AND TIMESTAMP ?"}

	// deleteSample replaces a sample that expired before it was written, so that older samples
	// at its time stay hidden, as if it had expired in Cassandra.
	deleteSample = &cql.Statement{Name: "delete_sample", Text: "DELETE FROM data_points USING TIMESTAMP ? WHERE key = ? AND column1 = ?"}
)

const (
	// batchBytes bounds the keys, columns and values of a batch of samples of one
	// row.
	batchBytes = 64 << 10

	// sampleArgs is the maximum number of arguments of a sample's statement.
	sampleArgs = 5

	// stampBytes is what cql.Entry.DataBytes counts for a timestamp, and nodes do not.
	stampBytes = 12 + stampLen

	columnLen, ttlLen, stampLen = 4, 4, 8

	// entryCells is the maximum number of an entry's values, not counting its key.
	entryCells = sampleArgs - 1
)

// modifiedBytes is the length of text in modified UTF-8. It is at most twice the length in
// UTF-8: one byte becomes two (NUL), four become six.
func modifiedBytes(text []byte) int {
	n := len(text)
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r == 0 {
			n++
		} else if size == 4 {
			n += 2
		}
		i += size
	}
	return n
}

// appendValue is like rowtime.AppendValue, but keeps the payloads of NaNs. KairosDB would read
// them all as the same NaN, but NaNs only get here if no KairosDB node reads the keyspace.
func appendValue(dst []byte, k model.Kind, cols *model.Columns, i int) ([]byte, error) {
	switch k {
	case model.Double:
		return binary.BigEndian.AppendUint64(dst, cols.Values[i]), nil
	case model.Long:
		return rowtime.AppendValue(dst, k, cols.Values[i], nil)
	case model.Null:
		return dst, nil
	case model.Complex:
		return append(dst, cols.Bytes(i)...), nil
	}
	return rowtime.AppendValue(dst, k, 0, cols.Bytes(i))
}

// A batcher collects samples for a batch: many of one row, or few of each of several rows,
// since a statement costs as much as about 30 samples. Its memory is reused, so adding a sample
// allocates nothing.
type batcher struct {
	parts   []rowPart
	value   []byte // of the sample to be added next
	entries []cql.Entry
	times   []int64
	args    []any
	cells   []cql.Raw // the values that entries bind, except keys, as bytes, which are cheapest to bind
	bytes   []byte    // the memory of the cells; never moved
	stamps  []int64
	size    int    // bytes of all keys, columns and values
	data    int    // size as a node counts it
	last    uint32 // column of the last entry

	replicas string // common to all rows

	boxedKey any // key of the last part, in one interface value for all its entries
}

// A rowPart is the part of a batch that belongs to one row: the entries from from up to the
// next part.
type rowPart struct {
	id     model.SeriesNumber // of the series in its source
	series model.Series
	key    []byte
	from   int
}

func newBatcher(rows int) *batcher {
	b := &batcher{
		times:  make([]int64, 0, rows),
		stamps: make([]int64, 0, rows),
	}
	b.allocate(rows)
	return b
}

func (b *batcher) allocate(rows int) {
	b.entries = make([]cql.Entry, 0, rows)
	b.args = make([]any, 0, sampleArgs*rows)
	b.cells = make([]cql.Raw, 0, entryCells*rows)
}

// forget empties b and allocates new memory, because statements may still refer to the old.
func (b *batcher) forget() {
	b.allocate(cap(b.entries))
	b.bytes = nil
	b.clear()
}

// clear empties b.
func (b *batcher) clear() {
	b.entries, b.times, b.args, b.cells, b.bytes = b.entries[:0], b.times[:0], b.args[:0], b.cells[:0], b.bytes[:0]
	b.stamps = b.stamps[:0]
	b.parts, b.size, b.data = b.parts[:0], 0, 0
}

// begin begins a row.
func (b *batcher) begin(id model.SeriesNumber, s model.Series, key []byte) {
	if n := len(b.parts); n > 0 && b.parts[n-1].from == len(b.entries) {
		b.parts = b.parts[:n-1] // it got no entries
	}
	b.parts = append(b.parts, rowPart{id: id, series: s, key: key, from: len(b.entries)})
	b.boxedKey = key
}

// hasRoom reports whether b has room for another row.
func (b *batcher) hasRoom() bool {
	return len(b.entries) == 0 || len(b.parts) < rowkey.BatchPartitions && len(b.entries) < cap(b.entries) && b.data < cql.JoinedBytes
}

// full reports whether b has no room for another sample.
func (b *batcher) full() bool {
	n := len(b.entries)
	return n == cap(b.entries) || n > 0 && b.size >= batchBytes || len(b.parts) > 1 && b.data >= cql.JoinedBytes
}

// partOf returns the part that contains an entry.
func (b *batcher) partOf(entry int) rowPart {
	part := b.parts[0]
	for _, p := range b.parts {
		if p.from <= entry {
			part = p
		}
	}
	return part
}

// ids returns the series of the entries in [from, to).
func (b *batcher) ids(from, to int) []model.SeriesNumber {
	var ids []model.SeriesNumber
	for i, p := range b.parts {
		end := len(b.entries)
		if i+1 < len(b.parts) {
			end = b.parts[i+1].from
		}
		if p.from < to && end > from && (len(ids) == 0 || ids[len(ids)-1] != p.id) {
			ids = append(ids, p.id)
		}
	}
	return ids
}

// add adds a sample with the value b.value.
func (b *batcher) add(ms int64, column uint32, ttl int, stampMS int64) {
	if !b.replaces(column, stampMS) {
		return
	}
	b.open(columnLen + len(b.value) + ttlLen + stampLen)
	args, st := append(b.nextArgs(), b.boxedKey, b.columnCell(column), b.cell(append(b.bytes, b.value...))), insertSample
	b.size += len(b.value)
	if ttl != 0 {
		args, st = append(args, b.cell(binary.BigEndian.AppendUint32(b.bytes, uint32(ttl)))), insertSampleTTL
		b.data -= ttlLen // nodes do not count it
	}
	b.end(ms, stampMS, st, append(args, b.stampCell(stampMS)))
}

// remove adds the deletion of a column's value, if it was written at or before stampMS.
func (b *batcher) remove(ms int64, column uint32, stampMS int64) {
	if !b.replaces(column, stampMS) {
		return
	}
	b.open(stampLen + columnLen)
	b.end(ms, stampMS, deleteSample, append(b.nextArgs(), b.stampCell(stampMS), b.boxedKey, b.columnCell(column)))
	b.data -= len(b.parts[len(b.parts)-1].key) // nodes do not count it
}

// replaces reports whether an entry for a column should be added, and drops the previous entry
// if it is for the same column. In a keyspace with a resolution of seconds, samples of the same
// second share a cell. The cell gets the sample that was acknowledged last; of samples with the
// same stamp, the one with the latest time.
func (b *batcher) replaces(column uint32, stampMS int64) bool {
	if n := len(b.entries); n > b.parts[len(b.parts)-1].from && b.last == column {
		if stampMS < b.stamps[n-1] {
			return false
		}
		b.entries, b.times, b.stamps = b.entries[:n-1], b.times[:n-1], b.stamps[:n-1]
	}
	b.last = column
	return true
}

// open makes room for the cells of the next entry, which take need bytes.
func (b *batcher) open(need int) {
	if cap(b.bytes)-len(b.bytes) < need {
		// Earlier entries still refer to the old memory, so it is not reused.
		b.bytes = make([]byte, 0, max(4<<10, 2*cap(b.bytes), need))
	}
	b.cells = b.cells[:entryCells*len(b.entries)]
}

func (b *batcher) columnCell(column uint32) *cql.Raw {
	b.size += len(b.parts[len(b.parts)-1].key) + columnLen
	return b.cell(binary.BigEndian.AppendUint32(b.bytes, column))
}

func (b *batcher) stampCell(ms int64) *cql.Raw {
	return b.cell(binary.BigEndian.AppendUint64(b.bytes, uint64(ms)))
}

// cell makes a cell of the bytes that longer has in addition to b.bytes.
func (b *batcher) cell(longer []byte) *cql.Raw {
	from := len(b.bytes)
	b.bytes = longer
	b.cells = append(b.cells, longer[from:len(longer):len(longer)])
	return &b.cells[len(b.cells)-1]
}

// nextArgs returns memory for the arguments of the next entry.
func (b *batcher) nextArgs() []any {
	first := sampleArgs * len(b.entries)
	args := b.args[first:first:cap(b.args)]
	b.args = b.args[:cap(b.args)]
	return args
}

// end completes an entry.
func (b *batcher) end(ms, stampMS int64, st *cql.Statement, args []any) {
	e := cql.Entry{Statement: st, Args: args}
	b.entries, b.times, b.stamps = append(b.entries, e), append(b.times, ms), append(b.stamps, stampMS)
	b.data += e.DataBytes() - stampBytes
}

// samples returns how many of the entries in [from, to) are samples, not deletions.
func (b *batcher) samples(from, to int) (n int) {
	for _, e := range b.entries[from:to] {
		if e.Statement != deleteSample {
			n++
		}
	}
	return n
}
