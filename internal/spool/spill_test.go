package spool

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/blockfile"
	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/units"
)

// TestSpillHoldsFewStrings writes a series of long equal strings, which the head
// keeps compressed, to a file. Spilling is for lack of memory: it must not expand
// all of them at once.
func TestSpillHoldsFewStrings(t *testing.T) {
	const samples, size = 100_000, 1000
	h := head.New(0)
	var b store.Batch
	value := []byte(strings.Repeat("x", size))
	kinds := make([]model.Kind, 1000)
	for i := range kinds {
		kinds[i] = model.TypeString.Kind()
	}
	for i := int64(0); i < samples; {
		b.Reset(0)
		for range kinds {
			b.AddBytes(7, i*1000, value, 0)
			i++
		}
		h.Append(&b, kinds)
	}
	g := &Generation{}
	g.place.Store(&place{head: h})
	if n := g.memory(); n < samples*size {
		t.Errorf("%d bytes of strings count as %d bytes", samples*size, n)
	}
	fs := vfs.NewMem()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := (&Spool{fs: fs}).writeFile(context.Background(), "file", 1, h, 0); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	// All that was ever allocated, so that nothing depends on when it is collected.
	if n := after.TotalAlloc - before.TotalAlloc; n > samples*size/2 {
		t.Errorf("spilling %d bytes of strings has allocated %d bytes", samples*size, n)
	}
	f, err := blockfile.Open(fs, "file", 1, blockfile.NewCache(0))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Samples != samples {
		t.Errorf("%d samples in the file, want %d", f.Samples, samples)
	}
}

// TestSpillOfWhatIsDrained: a generation that was drained while its file was
// written leaves no file.
func TestSpillOfWhatIsDrained(t *testing.T) {
	cfg := tinyConfig()
	cfg.Linger = time.Hour
	fs := vfs.NewMem()
	s := mustOpen(t, fs, cfg, Options{Sink: newRemote()})
	defer s.Close()
	put(t, s, testSeries("load", 1), 1, 1, 2, 3)
	g := s.active.Load()
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := s.spill(within(t), g); err != nil {
		t.Fatal(err)
	}
	names, err := fs.List("spool/" + spillName)
	if h := s.Health(); err != nil || len(names) != 0 || h.FileBytes != 0 || g.place.Load().head == nil {
		t.Errorf("files %v of %d bytes are left, %v", names, h.FileBytes, err)
	}
}

// TestFilesAnswerForWhatTheyHold: a view takes nothing from a file for a series
// that is not in it, or a time beyond it.
func TestFilesAnswerForWhatTheyHold(t *testing.T) {
	cfg := tinyConfig()
	cfg.Linger, cfg.GenerationSamples = time.Hour, 1<<20
	s := mustOpen(t, vfs.NewMem(), cfg, Options{})
	defer s.Close()
	a, b := testSeries("load", 1), testSeries("load", 2)
	put(t, s, a, 1, 1000, 2000)
	s.order.Lock()
	g := s.active.Load()
	err := s.cutLocked()
	s.order.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.spill(within(t), g); err != nil {
		t.Fatal(err)
	}
	put(t, s, b, 2, 1500)
	idA, _ := s.Lookup(a.AppendKey(nil))
	idB, _ := s.Lookup(b.AppendKey(nil))
	near, far := model.TimeRange{StartMS: 1500, EndMS: 3000}, model.TimeRange{StartMS: 2001, EndMS: 3000}
	for _, c := range []struct {
		id   store.Ref
		r    model.TimeRange
		want bool
	}{{idA, near, true}, {idA, far, false}, {idB, near, false}, {idB, far, false}} {
		if got := g.has(model.SeriesNumber(c.id), c.r); got != c.want {
			t.Errorf("the file has samples of series %d in %v: %v", c.id, c.r, got)
		}
	}
}

// TestOutageOfStrings: strings that are compressed in memory count with their full length against
// max_memory. So they also count with their full length towards the end of a generation: only a
// generation that has ended can go to a file, and make room while the remote store is down.
func TestOutageOfStrings(t *testing.T) {
	cfg := tinyConfig()
	cfg.GenerationBytes, cfg.MaxMemory, cfg.GenerationSamples = units.MiB, 3*units.MiB, 1<<20
	sink := newRemote()
	sink.fail = func() error { return errDown }
	s := mustOpen(t, vfs.NewMem(), cfg, Options{Sink: sink})
	defer s.Close()
	series := testSeries("text", 1)
	series.Type = model.TypeString
	ref, err := s.Create(t.Context(), series)
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t)
	text := []byte(strings.Repeat("x", 1000))
	for i := range int64(100) {
		var b store.Batch
		b.Reset(s.Epoch())
		for k := range int64(100) {
			b.AddBytes(ref, i*100+k, text, 0)
		}
		if err := s.Append(ctx, &b); err != nil {
			t.Fatalf("after %d MB, %d of them in files: %v", i/10, s.Health().FileBytes>>20, err)
		}
	}
}

// TestRestartWithLessMemory: a restart may lower max_memory below what the log brings back into the
// active generation. During an outage writes go on after such a restart, too.
func TestRestartWithLessMemory(t *testing.T) {
	cfg := tinyConfig()
	cfg.GenerationSamples = 1 << 20
	cfg.Linger = time.Hour
	sink := newRemote()
	sink.fail = func() error { return errDown }
	fs := vfs.NewMem()
	var times []int64
	for i := range int64(20_000) {
		times = append(times, -i) // samples that arrive out of order count with their full length
	}
	cfg.GenerationBytes, cfg.MaxMemory = units.MiB, 3*units.MiB
	s := mustOpen(t, fs, cfg, Options{Sink: sink})
	put(t, s, testSeries("load", 1), 1, times...)
	if m := s.memory(); m < 192<<10 || len(s.frozenLocked()) > 0 {
		t.Fatalf("%d bytes are in memory", m)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.GenerationBytes, cfg.MaxMemory = 64*units.KiB, 192*units.KiB
	s = mustOpen(t, fs, cfg, Options{Sink: sink})
	defer s.Close()
	ref, err := s.Create(t.Context(), testSeries("load", 2))
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	b.Reset(s.Epoch())
	b.AddLong(ref, 1, 1, 0)
	ctx := within(t)
	if err := s.Append(ctx, &b); err != nil {
		t.Errorf("%d bytes are in memory: %v", s.memory(), err)
	}
}

// TestCutCountsOnce: the samples of a generation count once while it ends. If they counted twice, a
// writer could wait for room that is there, and nobody would wake it.
func TestCutCountsOnce(t *testing.T) {
	cfg := tinyConfig()
	cfg.Linger = time.Hour
	s := mustOpen(t, vfs.NewMem(), cfg, Options{})
	defer s.Close()
	put(t, s, testSeries("load", 1), 1, 1, 2, 3)
	before, most := s.memory(), int64(0)
	s.order.Lock()
	s.mu.Lock() // as a reader that opens a view
	cut := make(chan error)
	go func() { cut <- s.cutLocked() }()
	for began := time.Now(); time.Since(began) < 50*time.Millisecond; {
		most = max(most, s.memory())
	}
	s.mu.Unlock()
	err := <-cut
	s.order.Unlock()
	if after := s.memory(); err != nil || most > before || after != before {
		t.Errorf("%d bytes before a generation ends, up to %d meanwhile, %d afterwards, %v", before, most, after, err)
	}
}
