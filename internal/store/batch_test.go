package store

import (
	"math"
	"testing"
)

func TestBatchKeepsValues(t *testing.T) {
	var b Batch
	b.Reset(7)
	b.AddLong(1, -5, math.MinInt64, 0)
	b.AddDouble(2, 10, math.Copysign(0, -1), 60)
	b.AddBytes(3, 20, []byte("first"), 0)
	b.AddNull(4, 30, 0)
	b.AddBytes(3, 40, nil, 1)
	b.AddBytes(3, 50, []byte("żółw"), 0)
	long := int64(math.MinInt64)
	want := []Sample{
		{-5, uint64(long), 1, 0}, {10, 1 << 63, 2, 60}, {20, 0<<32 | 5, 3, 0},
		{30, 0, 4, 0}, {40, 5 << 32, 3, 1}, {50, 5<<32 | 7, 3, 0},
	}
	if b.Epoch != 7 || len(b.Samples) != len(want) {
		t.Fatalf("epoch %d, %d samples; want 7, %d", b.Epoch, len(b.Samples), len(want))
	}
	for i, s := range b.Samples {
		if s != want[i] {
			t.Errorf("sample %d is %+v, want %+v", i, s, want[i])
		}
	}
	for i, text := range map[int]string{2: "first", 4: "", 5: "żółw"} {
		if got := string(b.Bytes(b.Samples[i])); got != text {
			t.Errorf("value of sample %d is %q, want %q", i, got, text)
		}
	}
}

func TestBatchCopiesBytes(t *testing.T) {
	var b Batch
	b.Reset(1)
	v := []byte("abc")
	b.AddBytes(1, 0, v, 0)
	v[0] = 'x'
	if got := string(b.Bytes(b.Samples[0])); got != "abc" {
		t.Errorf("value is %q after the caller reused its slice, want %q", got, "abc")
	}
}

func TestBatchIsReused(t *testing.T) {
	var b Batch
	fill := func() {
		b.Reset(1)
		for i := range int64(100) {
			b.AddDouble(1, i, 1.5, 0)
			b.AddBytes(2, i, []byte("value"), 0)
		}
	}
	fill()
	if n := testing.AllocsPerRun(10, fill); n > 0 {
		t.Errorf("filling a batch again allocates %v times, want 0", n)
	}
	b.Reset(2)
	if b.Epoch != 2 || len(b.Samples) != 0 || len(b.Data) != 0 {
		t.Errorf("after Reset: epoch %d, %d samples, %d bytes; want 2, 0, 0", b.Epoch, len(b.Samples), len(b.Data))
	}
}
