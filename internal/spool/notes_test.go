package spool

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/downsample"
	"varve/internal/safefile"
)

func wantUnnoted(t *testing.T, s *Spool, want string) {
	t.Helper()
	if got := string(s.Notes().Unnoted().Text()); got != want {
		t.Errorf("unnoted are %s, want %s", got, want)
	}
}

// After a crash the spool says of which metrics and hours samples were in its log, drained
// or not, until that is settled: also when the log has been given up, and after further
// crashes.
func TestHoursOfTheLog(t *testing.T) {
	const hour = 3_600_000
	mem := crashfs.New()
	cfg := tinyConfig()
	cfg.Linger = time.Hour
	sink := newRemote()
	s := mustOpen(t, mem, cfg, Options{Sink: sink})
	crash := func(sink Sink) {
		t.Helper()
		after := mem.CrashClone(vfs.CrashCloneCfg{})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		mem = after
		s = mustOpen(t, mem, cfg, Options{Sink: sink})
	}
	flush := func() {
		t.Helper()
		if _, err := s.Flush(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	put(t, s, testSeries("m", 1), 1, 5)
	wantUnnoted(t, s, "null")
	flush()
	put(t, s, testSeries("n", 1), 1, -1)
	crash(nil)
	wantUnnoted(t, s, `{"m":[[0,3600000]],"n":[[-3600000,0]]}`)
	s.Start(sink)
	flush()
	crash(sink) // the log of before is given up by now, or at this start
	if n := s.Health().Samples; n > 0 {
		t.Fatalf("%d samples wait", n)
	}
	wantUnnoted(t, s, `{"m":[[0,3600000]],"n":[[-3600000,0]]}`)
	crash(sink)
	wantUnnoted(t, s, `{"m":[[0,3600000]],"n":[[-3600000,0]]}`)
	settle(t, s)
	put(t, s, testSeries("m", 2), 1, 3*hour)
	crash(sink)
	wantUnnoted(t, s, `{"m":[[10800000,14400000]]}`)
	settle(t, s)
	flush()
	crash(sink)
	settle(t, s)
	crash(sink)
	wantUnnoted(t, s, "null")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// After an orderly shutdown notes are stored, and the next start reports no hours. It does
// report them after a crash, or if notes could not be stored.
func TestNotesOfAnOrderlyEnd(t *testing.T) {
	mem := crashfs.New()
	s := mustOpen(t, mem, tinyConfig(), Options{})
	var errNotes error
	stored := 0
	reopen := func() {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		mem = mem.CrashClone(vfs.CrashCloneCfg{})
		s = mustOpen(t, mem, tinyConfig(), Options{})
		s.Notes().BeforeTrim(func(context.Context) error { stored++; return errNotes })
	}
	put(t, s, testSeries("m", 1), 1, 5)
	reopen()
	wantUnnoted(t, s, "null")
	reopen()
	if wantUnnoted(t, s, "null"); stored != 1 {
		t.Errorf("notes were stored %d times", stored)
	}
	after := mem.CrashClone(vfs.CrashCloneCfg{})
	errNotes = errDown
	reopen()
	wantUnnoted(t, s, `{"m":[[0,3600000]]}`)
	errNotes, mem = nil, after
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, mem, tinyConfig(), Options{})
	wantUnnoted(t, s, `{"m":[[0,3600000]]}`)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Notes are stored before the part of the log is given up that has their samples: an error
// keeps it, and what a replay begins with.
func TestNotesBeforeALogIsGivenUp(t *testing.T) {
	mem := vfs.NewMem()
	cfg := tinyConfig()
	cfg.Linger = time.Hour
	s := mustOpen(t, mem, cfg, Options{Sink: newRemote()})
	var fails, stored atomic.Int64
	errNotes := errors.New("not now")
	s.Notes().BeforeTrim(func(context.Context) error {
		if fails.Load() >= 0 {
			fails.Add(1)
			return errNotes
		}
		stored.Add(1)
		return nil
	})
	want := content{}
	drain := func() {
		t.Helper()
		for range 3 {
			if _, err := fill(s, want, 60); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Flush(within(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
	first := segments(t, mem)[0]
	drain()
	until(t, "notes are to be stored", func() bool { return fails.Load() > 0 })
	if now := segments(t, mem); now[0] != first {
		t.Errorf("the log begins at %d, and did at %d", now[0], first)
	}
	if from, err := s.findFrom(); err != nil || from != first {
		t.Errorf("a replay would begin at %d of %d: %v", from, first, err)
	}
	fails.Store(-1 << 40)
	drain()
	until(t, "the log is given up", func() bool { return segments(t, mem)[0] > first })
	if stored.Load() == 0 {
		t.Error("no notes were stored")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// On a full disk all of the log is given up at once, when notes are stored somewhere and
// the hours that a start has found are noted.
func TestNotesOnAFullDisk(t *testing.T) {
	mem := vfs.NewMem()
	cfg := tinyConfig()
	waiting(t, mem, cfg, true)
	if err := mem.Remove("spool/noted"); err != nil { // as if that one had crashed
		t.Fatal(err)
	}
	disk := newFullDisk(mem, syscall.ENOSPC, 0)
	s := mustOpen(t, disk, cfg, Options{Sink: newRemote()})
	defer s.Close()
	var away atomic.Bool
	var asked atomic.Int64
	away.Store(true)
	s.Notes().BeforeTrim(func(context.Context) error {
		asked.Add(1)
		if away.Load() {
			return errDown
		}
		return nil
	})
	until(t, "drained, and notes are to be stored", func() bool { return s.Health().Samples == 0 && asked.Load() > 1 })
	n := len(segments(t, mem))
	away.Store(false)
	seen := asked.Load()
	until(t, "notes are stored", func() bool { return asked.Load() > seen+1 })
	if now := len(segments(t, mem)); now != n {
		t.Errorf("of %d segments %d are left, and the hours of their samples are not noted", n, now)
	}
	settle(t, s)
	until(t, "the log is given up", func() bool { return len(segments(t, mem)) == 0 })
}

// TestSealedHours: a flipped bit in a digit of the hours ends the start, with the way out. A file without
// a checksum, of an earlier build, is accepted, and an earlier build reads one with a checksum.
func TestSealedHours(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, mem, tinyConfig(), Options{})
	var h downsample.Hours
	h.Add("m", 7_200_000)
	plain := h.Text()
	err := s.notes.Store(t.Context(), bytes.Clone(plain))
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	sealed, err := safefile.Read(mem, "spool/hours", hoursMax)
	if err != nil {
		t.Fatal(err)
	}
	var read downsample.Hours
	if err := read.Parse(sealed); err != nil || !bytes.Equal(read.Text(), plain) {
		t.Errorf("an earlier build reads %s, %v", read.Text(), err)
	}
	damaged := bytes.Replace(sealed, []byte("7200000"), []byte("7200001"), 1)
	for text, want := range map[string]string{string(plain): "", string(sealed): "", string(damaged): "remove it"} {
		if err := safefile.Replace(mem, "spool/hours", []byte(text)); err != nil {
			t.Fatal(err)
		}
		s, err := Open(mem, "spool", tinyConfig(), Options{})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
		if err == nil {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A file of hours that cannot be read ends the start, with the way out.
func TestDamagedHours(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, mem, tinyConfig(), Options{})
	if err := errors.Join(s.Close(), safefile.Replace(mem, "spool/hours", []byte(`{"m":[`))); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(mem, "spool", tinyConfig(), Options{}); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("%v", err)
	}
}
