package store

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
)

// TestErrorTexts pins what users see.
func TestErrorTexts(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&InputError{Reason: "metric name is empty"}, "metric name is empty"},
		{&LimitError{Limit: "query.max_series", Max: 10}, "limit query.max_series of 10 reached"},
		{
			&LimitError{Limit: "query.max_series", Max: 10, Need: 11, What: "selecting series of load"},
			"limit query.max_series of 10 reached, at least 11 needed: selecting series of load",
		},
		{&UnavailableError{Reason: "the disk is full: make room"}, "the disk is full: make room"},
		{&UnavailableError{Reason: "cannot write", Err: fs.ErrPermission}, "cannot write: permission denied"},
		{
			&CorruptionError{File: "wal/000001", Offset: 4096, Reason: "checksum 1, expected 2"},
			"wal/000001: damaged at offset 4096: checksum 1, expected 2",
		},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%T says %q, want %q", c.err, got, c.want)
		}
	}
}

// TestErrorsAreToldApart: by type, however deep they are wrapped.
func TestErrorsAreToldApart(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("query: %w", fmt.Errorf("select: %w", err)) }
	var input *InputError
	var limit *LimitError
	var unavailable *UnavailableError
	var corruption *CorruptionError
	kinds := []struct {
		err error
		as  any
	}{
		{&InputError{}, &input}, {&LimitError{}, &limit}, {&UnavailableError{}, &unavailable}, {&CorruptionError{}, &corruption},
	}
	for i, k := range kinds {
		for j, other := range kinds {
			if got := errors.As(wrap(k.err), other.as); got != (i == j) {
				t.Errorf("%T is taken for %T: %v", k.err, other.err, got)
			}
		}
	}
	if !errors.Is(wrap(&UnavailableError{Err: fs.ErrNotExist}), fs.ErrNotExist) {
		t.Error("the cause of an UnavailableError is lost")
	}
}

// TestSectionKey: a setting is named with its place, where that is known.
func TestSectionKey(t *testing.T) {
	if a, b := Section("cassandra.spool").Key("max_bytes"), Section("").Key("max_bytes"); a != "cassandra.spool.max_bytes" || b != "max_bytes" {
		t.Errorf("%q, %q", a, b)
	}
}
