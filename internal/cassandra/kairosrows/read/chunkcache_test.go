package read

import (
	"fmt"
	"testing"
	"time"

	"varve/internal/collectors"
	"varve/internal/model"
)

// TestChunkCache: a slice is given back if it holds what is wanted, is young
// enough, was left alone for long enough before, nothing of it has expired and
// nobody changed its row meanwhile.
func TestChunkCache(t *testing.T) {
	now := time.UnixMilli(2_000_000_000_000)
	c := newChunkCache(4000, time.Minute, func() time.Time { return now }, collectors.Named(""))
	columns := func(n int) *model.Columns {
		var cols model.Columns
		for i := range n {
			cols.AppendFixed(int64(i)*1000, uint64(i), 0)
		}
		return &cols
	}
	key := []byte("row")
	whole := slice{from: 10, to: 20}
	if c.record(key, Typed, whole) != nil {
		t.Error("kept when it is asked for the first time")
	}
	put := func(change func(*chunkRecorder)) {
		r := c.record(key, Typed, whole)
		r.cell(nil, now.Add(-time.Hour).UnixMilli())
		r.add(model.Long, columns(5))
		change(r)
		if err := r.finish(); err != nil {
			t.Fatal(err)
		}
	}
	there := func(s slice) bool { return c.get(key, Typed, s, time.Minute) != nil }
	nothing := func(*chunkRecorder) {}

	put(nothing)
	for s, want := range map[slice]bool{whole: true, {from: 12, to: 13}: true, {from: 9, to: 20}: false, {from: 10, to: 21}: false} {
		if there(s) != want {
			t.Errorf("%+v of %+v: %v", s, whole, !want)
		}
	}
	if c.get(key, LegacyLong, whole, time.Minute) != nil {
		t.Error("another form of the row has it too")
	}
	c.forget(string(key))
	if there(whole) || c.bytes != 0 {
		t.Error("there after its row changed")
	}
	put(func(*chunkRecorder) { c.forget(string(key)) })
	if there(whole) {
		t.Error("there although its row changed while it was read")
	}
	for stamp, quiet := range map[int64]time.Duration{now.UnixMilli() - 10_000: 10 * time.Second, now.UnixMicro() - 9_000_000: 9 * time.Second} {
		put(func(r *chunkRecorder) { r.cell(nil, stamp) })
		began := now
		if now = now.Add(quiet - time.Millisecond); !there(whole) {
			t.Errorf("quiet for %v: gone before that", quiet)
		}
		if now = now.Add(time.Millisecond); there(whole) {
			t.Errorf("quiet for %v: there after that", quiet)
		}
		now = began
	}
	put(func(r *chunkRecorder) { r.cell(nil, now.Add(time.Second).UnixMilli()) })
	if there(whole) {
		t.Error("there although it is being written")
	}
	ttl := int32(30)
	put(func(r *chunkRecorder) { r.cell(&ttl, 1) })
	if now = now.Add(29 * time.Second); !there(whole) {
		t.Error("gone before it expired")
	}
	if now = now.Add(time.Second); there(whole) {
		t.Error("there after it expired")
	}
	put(nothing)
	if now = now.Add(time.Minute); there(whole) {
		t.Error("there after its greatest age")
	}
	put(func(r *chunkRecorder) { r.add(model.Long, columns(1)) })
	if there(whole) {
		t.Error("samples out of order were kept")
	}
	for i := range 50 {
		c.record(fmt.Append(nil, "row", i), Typed, whole)
		r := c.record(fmt.Append(nil, "row", i), Typed, whole)
		r.cell(nil, 0)
		r.add(model.Long, columns(3))
		if err := r.finish(); err != nil {
			t.Fatal(err)
		}
		if c.bytes > c.maxBytes {
			t.Fatalf("%d bytes, at most %d", c.bytes, c.maxBytes)
		}
	}
	if len(c.groups) < 3 || len(c.groups) == 50 || c.recent.Len() != len(c.groups) {
		t.Errorf("%d entries", len(c.groups))
	}
	none := newChunkCache(0, time.Minute, time.Now, collectors.Named(""))
	for range 2 {
		if none.record(key, Typed, whole) != nil {
			t.Error("a cache of no size records")
		}
	}
}
