package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrStale is returned by Append for a batch built in an earlier epoch, or with a
// ref of a series that was forgotten since. Nothing was stored.
var ErrStale = errors.New("series references are from an earlier epoch")

// ErrClosed is returned by every call on a closed store or View.
var ErrClosed = errors.New("store is closed")

// ErrNotFound is returned by KeyValues.Get for a key that is not there.
var ErrNotFound = errors.New("key not found")

// An error matches ErrLacks, by errors.Is, if the database of the store refuses statements for
// lack of a right or a table. If another server is creating the table, the error passes; otherwise
// it remains until an operator acts.
var ErrLacks = errors.New("a right or a table is missing")

// An InputError is the caller's fault.
type InputError struct{ Reason string }

func (e *InputError) Error() string { return e.Reason }

// A Section is the path of a component's settings in the configuration, such as
// "cassandra.spool". The caller that opens the component supplies it; the component
// knows only its own keys.
type Section string

// Key returns the full key of a setting, for messages.
func (s Section) Key(name string) string {
	if s == "" {
		return name
	}
	return string(s) + "." + name
}

// A LimitError says which limit a request hit and what it would have needed.
type LimitError struct {
	Limit string // configuration key, for example "query.max_samples"
	Max   int64
	Need  int64  // 0 if unknown; a lower bound when the work was stopped early
	What  string // what was being done, for people

	// Busy says that other requests held what this one needed, such as a slot or memory: the same
	// request may succeed later.
	Busy bool

	// Wait is the time after which the limit is expected to let the same request in. 0 means
	// that it does not, or that the time is not known. See Passes.
	Wait time.Duration
}

func (e *LimitError) Error() string {
	s := fmt.Sprintf("limit %s of %d reached", e.Limit, e.Max)
	if e.Need > 0 {
		s += fmt.Sprintf(", at least %d needed", e.Need)
	}
	if e.What != "" {
		s += ": " + e.What
	}
	return s
}

// RetryIn returns how long a client should wait before it repeats a failed request. 0
// means that this is not known.
func RetryIn(err error) time.Duration {
	if limit, ok := errors.AsType[*LimitError](err); ok {
		return limit.Wait
	}
	if unavailable, ok := errors.AsType[*UnavailableError](err); ok {
		return unavailable.Wait
	}
	return 0
}

// IsBusy reports whether other requests held what the request that failed with err needed.
func IsBusy(err error) bool {
	limit, ok := errors.AsType[*LimitError](err)
	return ok && limit.Busy
}

// Passes reports whether a request that failed with err may succeed later as it is: the store
// was unavailable or closed, the time was up, or a limit lets the request in after a while or when
// others have ended.
func Passes(err error) bool {
	return errors.As(err, new(*UnavailableError)) || errors.Is(err, ErrClosed) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || RetryIn(err) > 0 || IsBusy(err)
}

// An UnavailableError means that the store cannot serve the request now, for
// example because its disk is full. Reason says why and the way out.
type UnavailableError struct {
	Reason string
	Err    error         // cause, may be nil
	Wait   time.Duration // until the request may succeed, 0 if that is not known
}

func (e *UnavailableError) Error() string {
	if e.Err == nil {
		return e.Reason
	}
	return e.Reason + ": " + e.Err.Error()
}

func (e *UnavailableError) Unwrap() error { return e.Err }

// A PartError comes from an Append to a store of several parts, some of which cannot take
// samples now. The samples for the other parts are stored, and callers continue to append to
// those.
type PartError struct {
	Stored  int   // samples of the batch
	Refused int   // samples of the batch
	Err     error // why, an *UnavailableError among others
}

func (e *PartError) Error() string { return e.Err.Error() }

func (e *PartError) Unwrap() error { return e.Err }

// A CorruptionError means that stored bytes are not what was written.
type CorruptionError struct {
	File   string
	Offset int64  // -1: the file as a whole, which may be missing
	Reason string // expected and got
}

func (e *CorruptionError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("%s: damaged: %s", e.File, e.Reason)
	}
	return fmt.Sprintf("%s: damaged at offset %d: %s", e.File, e.Offset, e.Reason)
}
