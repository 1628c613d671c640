package store

import (
	"fmt"

	"varve/internal/units"
)

// A DiskReserve is free disk space below which somebody takes no more writes.
type DiskReserve struct {
	Owner   string      // who: "the store"
	Setting string      // the key of Least
	Least   units.Bytes // 0 = nobody looks
	WayOut  string      // what an operator can do
}

// Resume is the free space from which writes are taken again: a quarter more than
// when they are refused, so that nobody goes back and forth.
func (r DiskReserve) Resume() units.Bytes { return r.Least + r.Least/4 }

// Full is what refused writers are told: the reason, and what is free at this
// moment, if that is known.
func (r DiskReserve) Full(reason string, cause error, free units.Bytes, known bool) *UnavailableError {
	if known {
		return &UnavailableError{Err: cause, Reason: fmt.Sprintf("%s: %s are free; %s stops writing below %s (%s) and resumes at %s: %s",
			reason, free.Text(), r.Owner, r.Least.Text(), r.Setting, r.Resume().Text(), r.WayOut)}
	}
	return &UnavailableError{Err: cause, Reason: fmt.Sprintf("%s; %s tries to write each second and resumes when that works: %s", reason, r.Owner, r.WayOut)}
}
