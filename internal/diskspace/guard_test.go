package diskspace

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"

	"varve/internal/store"
	"varve/internal/units"
)

// A disk has free space that a test sets, and a guard that looks at it.
type disk struct {
	*Guard
	free    units.Bytes
	fault   error // of asking for the free space
	refused int
	log     bytes.Buffer
}

func newDisk(least units.Bytes) *disk {
	d := &disk{free: 10 * least}
	d.Guard = &Guard{
		Owner: "the store", Setting: "min_free_bytes", Least: least, WayOut: "delete something",
		Free:    func() (units.Bytes, error) { return d.free, d.fault },
		Refused: func() { d.refused++ },
		Logger:  slog.New(slog.NewTextHandler(&d.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	return d
}

func resume() error { return nil }

// wants holds the error of writes against the parts of its text, none if writes are taken.
func (d *disk) wants(t *testing.T, parts ...string) {
	t.Helper()
	err := d.Err()
	if (err != nil) != (len(parts) > 0) {
		t.Fatalf("%v, want %q", err, parts)
	}
	if err != nil && !errors.As(err, new(*store.UnavailableError)) {
		t.Errorf("%T is not an UnavailableError", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("no %q in %v", part, err)
		}
	}
}

// TestNearlyFull: writes are refused below the limit, and taken again at a quarter more, so that
// they do not come and go around it.
func TestNearlyFull(t *testing.T) {
	d := newDisk(100 * units.MiB)
	for _, step := range []struct {
		free    units.Bytes
		refused bool
		resumed bool
	}{
		{100 * units.MiB, false, false},
		{100*units.MiB - 1, true, false},
		{100 * units.MiB, true, false},
		{125*units.MiB - 1, true, false},
		{125 * units.MiB, false, true},
		{100 * units.MiB, false, false},
		{0, true, false},
	} {
		d.free = step.free
		if resumed := d.Look(resume); resumed != step.resumed || (d.Err() != nil) != step.refused {
			t.Errorf("%s are free: resumed %t, %v", step.free.Text(), resumed, d.Err())
		}
	}
	if d.refused != 2 {
		t.Errorf("it was told %d times that writes are refused, want twice", d.refused)
	}
	d.wants(t, "the disk is nearly full", "0 bytes are free", "the store stops writing below 100.0 MiB (min_free_bytes)", "resumes at 125.0 MiB", "free some space, or enlarge the disk")
	d.free = units.MiB
	d.wants(t, "1024.0 KiB are free", "resumes at 125.0 MiB: delete something")
}

// TestFull: what a write met counts although the disk has space by its own account, until
// writing works. The cause stays in the error, without the log's words for a restart.
func TestFull(t *testing.T) {
	d := newDisk(units.MiB)
	failure := &store.UnavailableError{Reason: "restart the server", Err: syscall.ENOSPC}
	if err := d.Full(failure); d.Err() != nil || !errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "restart") {
		t.Errorf("Full returns %v, and leaves %v", err, d.Err())
	}
	if err := d.Block(failure); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Block returns %v", err)
	}
	d.wants(t, "the disk is full: ", "free some space", "no space left on device")
	if err := d.Block(errors.New("another")); !strings.Contains(err.Error(), "another") || d.refused != 1 {
		t.Errorf("a second blockage: %v, told %d times", err, d.refused)
	}
	d.wants(t, "no space left on device")

	failing := func() error { return errors.New("not yet") }
	for range 3 {
		if d.Look(failing) || d.Err() == nil {
			t.Fatal("writes are taken although writing fails")
		}
	}
	if n, all := strings.Count(d.log.String(), "level=WARN"), strings.Count(d.log.String(), "not yet"); n != 1 || all != 3 {
		t.Errorf("%d warnings, %d attempts in the log; want 1 and 3:\n%s", n, all, &d.log)
	}
	if !d.Look(resume) {
		t.Error("writes stay refused although writing works")
	}
	d.wants(t)
}

// TestUnknownSpace: where the free space is ignored or not told, writes are refused only when
// one fails, and tried again each time.
func TestUnknownSpace(t *testing.T) {
	for name, d := range map[string]*disk{"ignored": newDisk(0), "not told": newDisk(units.MiB)} {
		d.free, d.fault = 0, errors.New("no such call")
		if free, known := d.FreeSpace(); known {
			t.Errorf("%s: %s are free", name, free.Text())
		}
		if d.Look(resume); d.Err() != nil {
			t.Errorf("%s: %v", name, d.Err())
		}
		_ = d.Block(syscall.ENOSPC)
		d.wants(t, "the disk is full; the store tries to write each second and resumes when that works: free some space")
		if !d.Look(resume) {
			t.Errorf("%s: it is not tried again", name)
		}
		d.wants(t)
	}
}

// TestBlockedAtOnce: of writers that fail at the same moment one tells of it.
func TestBlockedAtOnce(t *testing.T) {
	d := newDisk(units.MiB)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if d.Block(syscall.ENOSPC) == nil || d.Err() == nil {
				t.Error("a write is taken")
			}
		})
	}
	all.Wait()
	if n := strings.Count(d.log.String(), "level=ERROR"); d.refused != 1 || n != 1 {
		t.Errorf("told %d times, %d errors in the log", d.refused, n)
	}
}
