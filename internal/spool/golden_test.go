package spool

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/model"
	"varve/internal/store"
)

// goldenDir has a directory for each version of the log, the newest last.
const goldenDir = "testdata/golden"

var goldenVersions = []string{"v1", "v2"}

// goldenContent writes three generations, one drained, one frozen and one not cut, and returns
// the expected content.
func goldenContent(t *testing.T, fs vfs.FS) content {
	cfg := tinyConfig()
	cfg.GenerationSamples, cfg.Linger = 1<<20, time.Hour
	sink := newRemote()
	var ms int64 = 1_700_000_000_000
	s := mustOpen(t, fs, cfg, Options{Sink: sink, Now: func() time.Time { return time.UnixMilli(ms) }})
	put(t, s, testSeries("drained", 1), 1, 1, 2, 3)
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	sink.mu.Lock()
	sink.fail = func() error { return errDown }
	sink.mu.Unlock()
	want := content{}
	for n := range 2 {
		for i, typ := range []model.Type{model.TypeLong, model.TypeDouble, model.TypeString, model.TypeNull, "custom"} {
			series := model.Series{Metric: "żółw", Type: typ, Tags: model.MustTags("kind", string(typ))}
			var b store.Batch
			b.Reset(s.Epoch())
			ref, err := s.Create(within(t), series)
			if err != nil {
				t.Fatal(err)
			}
			for k := range 3 {
				at := int64(k + n) // the second overwrites
				want.set(string(series.AppendKey(nil)), at, addSample(&b, ref, typ.Kind(), at, 100*n+10*i+k, uint32(60*n)))
			}
			if err := s.Append(within(t), &b); err != nil {
				t.Fatal(err)
			}
		}
		if n == 0 {
			s.order.Lock()
			s.cutLocked()
			s.order.Unlock()
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := mustOpen(t, fs, cfg, Options{}).Close(); err != nil { // a segment of another process
		t.Fatal(err)
	}
	return want
}

// TestGolden opens spools that this version and earlier ones have written.
func TestGolden(t *testing.T) {
	mem := vfs.NewMem()
	want := goldenContent(t, mem)
	if *rewrite {
		export(t, mem, goldenDir+"/"+goldenVersions[len(goldenVersions)-1])
	}
	for _, version := range goldenVersions {
		t.Run(version, func(t *testing.T) { openGolden(t, goldenDir+"/"+version, want) })
	}
}

func openGolden(t *testing.T, dir string, want content) {
	fs := vfs.NewMem()
	for _, name := range []string{"spool", "spool/" + logName} {
		if err := fs.MkdirAll(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(dir + "/*.wal")
	if err != nil || len(files) < 2 {
		t.Fatalf("golden files: %v, %v", files, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f, err := fs.Create("spool/log/"+filepath.Base(file), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		f.Write(raw)
		f.Close()
	}
	sink := newRemote()
	s := mustOpen(t, fs, tinyConfig(), Options{Sink: sink, Now: func() time.Time { return time.UnixMilli(1_700_000_000_000 - 5) }})
	defer s.Close()
	if h := s.Health(); h.Samples > 30 {
		t.Errorf("%d samples, want those that were not drained only", h.Samples)
	}
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := sink.content().diff(want); err != nil {
		t.Error(err)
	}
	if len(sink.written()) != 2 || sink.written()[0] < 1_700_000_000_000 || sink.written()[0] > 1_700_000_000_009 || sink.written()[1] <= sink.written()[0] {
		t.Errorf("stamps: %v", sink.written())
	}
}

func export(t *testing.T, mem vfs.FS, dir string) {
	t.Helper()
	names, err := mem.List("spool/" + logName)
	if err != nil {
		t.Fatal(err)
	}
	os.RemoveAll(dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		f, err := mem.Open("spool/log/" + name)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
