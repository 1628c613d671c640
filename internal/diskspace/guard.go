// Package diskspace refuses writes while a disk is full, and takes them again when there is
// space.
package diskspace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"varve/internal/store"
	"varve/internal/units"
)

// A Guard refuses writes while a disk has too little free space, or after it
// has refused a write for lack of space. The fields are set before its first use.
// One goroutine calls Look; the other methods may be called concurrently.
type Guard struct {
	Owner   string      // of the data on the disk, in messages: "the store"
	Setting string      // configuration key of Least
	Least   units.Bytes // free space below which writes are refused; 0 = the free space is ignored
	WayOut  string      // what an operator can do while the disk is not full

	Free    func() (units.Bytes, error) // free space of the disk
	Refused func()                      // called when writes begin to be refused
	Logger  *slog.Logger

	blocked atomic.Pointer[blockage]
}

// A blockage is the reason why writes are refused.
type blockage struct {
	full   bool  // not only nearly
	err    error // cause, may be nil
	logged bool  // a failed attempt to resume was logged; for Look
}

// FreeSpace returns the free space. known is false if it is ignored, or if the file
// system does not tell it.
func (g *Guard) FreeSpace() (free units.Bytes, known bool) {
	if g.Least == 0 {
		return 0, false
	}
	free, err := g.Free()
	return free, err == nil
}

// Err returns why writes are refused, nil if they are taken.
func (g *Guard) Err() error {
	if b := g.blocked.Load(); b != nil {
		return g.unavailable(b)
	}
	return nil
}

// Full returns an error that says that the disk is full. err is what could not be
// done.
func (g *Guard) Full(err error) error {
	return g.unavailable(&blockage{full: true, err: causeOf(err)})
}

// Block refuses writes until Look finds enough space, because the disk is full, and
// returns what Full does.
func (g *Guard) Block(err error) error {
	return g.block(&blockage{full: true, err: causeOf(err)})
}

// causeOf returns the failure behind the error of a log. The log asks for a restart,
// which a full disk does not need.
func causeOf(err error) error {
	if log, ok := errors.AsType[*store.UnavailableError](err); ok {
		return log.Err
	}
	return err
}

func (g *Guard) block(b *blockage) error {
	e := g.unavailable(b)
	if g.blocked.CompareAndSwap(nil, b) {
		g.Refused()
		g.Logger.Error("writes are refused until there is space", "error", e)
	}
	return e
}

// Look refuses writes if there is too little free space. If there is enough again,
// or the free space is unknown, it calls resume and takes writes if that succeeds.
// It reports whether writes are taken again.
func (g *Guard) Look(resume func() error) (resumed bool) {
	free, known := g.FreeSpace()
	b := g.blocked.Load()
	if b == nil {
		if known && free < g.Least {
			g.block(&blockage{})
		}
		return false
	}
	if known && free < g.resumeAt() {
		return false
	}
	if err := resume(); err != nil {
		level := slog.LevelDebug // each attempt fails until there is space
		if !b.logged {
			level, b.logged = slog.LevelWarn, true
		}
		g.Logger.Log(context.Background(), level, "writing cannot resume yet; will retry each second", "error", err)
		return false
	}
	g.blocked.Store(nil)
	g.Logger.Info("there is space again; writes are accepted")
	return true
}

// resumeAt is the free space at which writes are taken again: a quarter more than
// Least, so that the guard does not alternate around Least.
func (g *Guard) resumeAt() units.Bytes { return g.Least + g.Least/4 }

// wayOutOfFull is what an operator can do when the disk is full. A deletion is not
// among it, since it is written to the log too.
const wayOutOfFull = "free some space, or enlarge the disk"

// unavailable is the error of a blockage, with the present free space.
func (g *Guard) unavailable(b *blockage) *store.UnavailableError {
	free, known := g.FreeSpace()
	reason, wayOut := "the disk is nearly full", g.WayOut
	if b.full {
		reason = "the disk is full"
	}
	if b.full || known && free == 0 {
		wayOut = wayOutOfFull
	}
	if known {
		return &store.UnavailableError{Err: b.err, Reason: fmt.Sprintf("%s: %s are free; %s stops writing below %s (%s) and resumes at %s: %s",
			reason, free.Text(), g.Owner, g.Least.Text(), g.Setting, g.resumeAt().Text(), wayOut)}
	}
	return &store.UnavailableError{Err: b.err, Reason: fmt.Sprintf("%s; %s tries to write each second and resumes when that works: %s", reason, g.Owner, wayOut)}
}
