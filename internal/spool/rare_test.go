package spool

import (
	"errors"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/blockfile"
	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/safefile"
	"varve/internal/store"
)

// TestAdmit: after Admit, samples that were refused for an external reason are accepted.
func TestAdmit(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), tinyConfig(), Options{Sink: newRemote()})
	defer s.Close()
	if s.Admit() {
		t.Error("writes were refused")
	}
	s.Refuse(errors.New("somebody else has taken over"))
	if err := tryPut(s, testSeries("load", 1), 1, 1); err == nil || !strings.Contains(err.Error(), "somebody else has taken over") {
		t.Errorf("refused: %v", err)
	}
	if !s.Admit() || s.Admit() {
		t.Error("writes were not refused, or still are")
	}
	put(t, s, testSeries("load", 1), 1, 1)
}

// TestStampsOfOtherSamples: a file of write timestamps that has more or fewer of them than there are samples is an error.
func TestStampsOfOtherSamples(t *testing.T) {
	const first = 1_700_000_000_000
	s := &Spool{fs: vfs.NewMem(), cache: blockfile.NewCache(0)}
	stamped := func(samples int64) *head.Head {
		h := head.NewStamped(0)
		for i := range samples {
			var b store.Batch
			b.Reset(0)
			b.AddLong(7, i, i, 0)
			h.AppendStamped(&b, []model.Kind{model.Long}, first+i)
		}
		return h
	}
	f, err := s.spillHead(t.Context(), stamped(100), "file", 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{99, 101} {
		if f.stamps, err = s.spillHead(t.Context(), stamped(n), "file"+stampsSuffix, 2, first); err != nil {
			t.Fatal(err)
		}
		run := head.Run{Stamps: true}
		if _, err := f.snapshot(7, model.AllTime, &run); err == nil || !strings.Contains(err.Error(), "series 7 has 100 samples in file, and ") {
			t.Errorf("%d timestamps of 100 samples: %v", n, err)
		}
		if err := f.stamps.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestStartThatFails: Open fails if earlier spilled files cannot be removed, or the begin of
// the log cannot be stored.
func TestStartThatFails(t *testing.T) {
	for what, c := range map[string]struct {
		prepare func(fs vfs.FS) error
		fails   func(op errorfs.Op) bool
		want    string
	}{
		"spilled": {
			func(fs vfs.FS) error { return safefile.Replace(fs, "spool/spill/old", nil) },
			func(op errorfs.Op) bool { return op.Kind == errorfs.OpRemove && strings.HasSuffix(op.Path, "/old") },
			"remove spilled file",
		},
		"begun": {
			func(fs vfs.FS) error { return fs.Remove("spool/" + begunName) },
			func(op errorfs.Op) bool { return op.Kind == errorfs.OpCreate && strings.Contains(op.Path, begunName) },
			"store that the log of the spool was begun",
		},
	} {
		mem := vfs.NewMem()
		if err := errors.Join(mustOpen(t, mem, tinyConfig(), Options{}).Close(), c.prepare(mem)); err != nil {
			t.Fatal(what, err)
		}
		s, err := Open(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if c.fails(op) {
				return errorfs.ErrInjected
			}
			return nil
		})), "spool", tinyConfig(), Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
		if err == nil {
			_ = s.Close()
		}
	}
}

// TestManyIdleSeries: all series of a drained generation are recorded, however many they are.
func TestManyIdleSeries(t *testing.T) {
	h := head.New(0)
	const series = 3 * 4096
	for id := range store.Ref(series + 1) {
		h.Append(&store.Batch{Samples: []store.Sample{{Ref: id}}}, []model.Kind{model.Long})
	}
	g := &Generation{}
	g.place.Store(&place{head: h})
	b := idleBook{drained: roaring.New(), used: roaring.New()}
	b.drop(g)
	if n := b.used.GetCardinality(); n != series+1 || b.drained.GetCardinality() != n {
		t.Errorf("%d and %d series are noted, want %d", n, b.drained.GetCardinality(), series+1)
	}
}

// TestNumbersOfSeriesInTheLog: a series keeps the number that it has, whatever number the log gives it. A number that is that
// of another series is an error: samples would go to the wrong one.
func TestNumbersOfSeriesInTheLog(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), tinyConfig(), Options{})
	defer s.Close()
	key := func(n int) string { return string(testSeries("load", n).AppendKey(nil)) }
	g := s.active.Load()
	r := &replayer{spool: s, renamed: map[model.SeriesNumber]model.SeriesNumber{}}
	for _, c := range []struct {
		id   model.SeriesNumber
		key  string
		want string // of the error; empty: none
	}{
		{3, key(1), ""},
		{3, key(1), ""},
		{7, key(1), ""}, // is renamed
		{3, key(2), "id 3 is assigned to series "},
		{4, key(2), ""},
	} {
		err := r.define(g, record.Definition{ID: c.id, Key: c.key})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("series %d %q: %v", c.id, c.key, err)
		}
	}
	if r.renamed[7] != 3 || len(r.renamed) != 1 || s.series.Key(3) != key(1) || s.series.Key(4) != key(2) {
		t.Errorf("renamed %v, series 3 is %q, series 4 is %q", r.renamed, s.series.Key(3), s.series.Key(4))
	}
	if next := s.series.NextID(); next <= 7 {
		t.Errorf("number %d is given again", next)
	}
}

// TestRecordsThatCannotBeReplayed: a record that is too short, has a time that cannot be, or is of an unknown type ends the
// replay: what follows it would be read with wrong write timestamps.
func TestRecordsThatCannotBeReplayed(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), tinyConfig(), Options{})
	defer s.Close()
	known, renaming := &replayer{spool: s}, &replayer{spool: s, renamed: map[model.SeriesNumber]model.SeriesNumber{7: 3}}
	long := strings.Repeat("\xff", 64)
	for _, c := range []struct {
		typ     byte
		payload string
	}{
		{typeCut, ""}, {typeCut, long}, {typeFloor, ""}, {typeFloor, long}, {typeCutV1, ""}, {typeFloorV1, ""},
		{typeBatch, ""}, {typeBatch, "1234567"}, {typeBatch, "\x00\x00\x00\x00\x00\x00\x00\x00"}, {typeBatch, long}, {254, ""},
	} {
		for _, r := range []*replayer{known, renaming} {
			if err := r.record(1, c.typ, []byte(c.payload)); err == nil {
				t.Errorf("a record of type %d, %d bytes, is replayed, with %d renamed series", c.typ, len(c.payload), len(r.renamed))
			}
		}
	}
	for _, r := range []*replayer{known, renaming} {
		if err := r.samples([]byte(long), &store.Batch{}); err == nil {
			t.Errorf("samples that cannot be decoded are replayed, with %d renamed series", len(r.renamed))
		}
	}
}
