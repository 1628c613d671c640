package writelog

import (
	"context"
	"errors"
	"fmt"

	"varve/internal/store"
	"varve/internal/wal"
)

// Error turns an error of the log into the caller's. A record that the log refuses is
// the caller's fault. A log that failed for lack of space is replaced when there is some.
// Any other failure is final: what is on disk is unknown.
func (l *Log) Error(ctx context.Context, err error) error {
	var input *store.InputError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("wait for the write-ahead log: %w", err)
	case errors.As(err, &input):
		return err
	case l.closed.Load() || errors.Is(err, store.ErrClosed):
		return store.ErrClosed
	case wal.NoSpace(err):
		// Not l.Writable(): when there is space again by now, this record is not in the
		// log all the same.
		return l.options.Disk.Block(err)
	}
	return l.Fail("the write-ahead log failed", wal.Cause(err))
}

// Fail refuses writes from here on. It returns the error of the first failure.
func (l *Log) Fail(reason string, err error) error {
	e := &store.UnavailableError{Reason: reason + "; " + l.options.Final, Err: err}
	if l.failure.CompareAndSwap(nil, e) {
		l.options.Logger.Error(reason, "error", err)
	}
	return l.failure.Load()
}

// ReadOnly refuses writes for a reason that is no failure. It comes before Open.
func (l *Log) ReadOnly(reason string) {
	l.failure.Store(&store.UnavailableError{Reason: reason})
}

// Failure returns why nothing is written any more, nil if nothing has failed.
func (l *Log) Failure() error {
	if e := l.failure.Load(); e != nil {
		return e
	}
	return nil
}

// Writable returns why writes are refused, nil if they are taken.
func (l *Log) Writable() error {
	if err := l.Failure(); err != nil {
		return err
	}
	return l.options.Disk.Err()
}

// Durable is Writable, after all records that were acknowledged before are durable. What is stored
// elsewhere then never tells of records that a power cut has taken.
func (l *Log) Durable() error {
	if err := l.Writable(); err != nil {
		return err
	}
	return l.Sync(context.Background())
}

// Sync returns when all records that were acknowledged before are durable.
func (l *Log) Sync(ctx context.Context) error {
	if err := l.current.Load().Sync(ctx); err != nil {
		return l.Error(ctx, err)
	}
	return nil
}

// CheckOpen returns store.ErrClosed after Shut, and ctx's error if it has ended.
func (l *Log) CheckOpen(ctx context.Context) error {
	if l.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

// Closed reports whether Shut was called.
func (l *Log) Closed() bool { return l.closed.Load() }

// Shut refuses further calls, so that Close can follow. A second call returns
// store.ErrClosed.
func (l *Log) Shut() error {
	if !l.closed.CompareAndSwap(false, true) {
		return store.ErrClosed
	}
	return nil
}

// Close writes and syncs what was appended. It returns the log's failure if there is one.
func (l *Log) Close() error {
	if log := l.current.Load(); log != nil {
		return log.Close()
	}
	return nil
}
