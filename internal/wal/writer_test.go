package wal

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/store"
)

// TestOpenBesideItself: a log whose metrics cannot be registered is not opened, and leaves
// nothing open.
func TestOpenBesideItself(t *testing.T) {
	mem, reg := vfs.NewMem(), prometheus.NewRegistry()
	o := Options{Registerer: reg}
	l, err := Open(mem, testDir, small, o)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := Open(mem, "data/other", small, o); err == nil || second != nil {
		t.Errorf("with metrics that are there already: %v, %v", second, err)
	}
	closeLog(t, l)
	l, err = Open(mem, "data/other", small, o)
	if err != nil {
		t.Fatal(err)
	}
	wait(t, l, l.Append(1, []byte("x")))
	closeLog(t, l)
}

func TestCause(t *testing.T) {
	cause := errors.New("disk is gone")
	without := &store.UnavailableError{Reason: "full"}
	for _, c := range []struct{ err, want error }{
		{nil, nil}, {cause, cause}, {&store.UnavailableError{Reason: "failed", Err: cause}, cause}, {without, without},
	} {
		if got := Cause(c.err); got != c.want {
			t.Errorf("Cause(%v) = %v, want %v", c.err, got, c.want)
		}
	}
}
