package writelog

import (
	"context"
	"errors"
	"fmt"

	"varve/internal/store"
	"varve/internal/wal"
)

// Error converts an error of the log for the caller. If the log refuses a record, that
// is the caller's fault. A log that failed for lack of space is replaced when there is
// space again. Any other failure is final, since the state of the disk is unknown.
func (l *Log) Error(ctx context.Context, err error) error {
	var input *store.InputError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("wait for the write-ahead log: %w", err)
	case errors.As(err, &input):
		return err
	case l.life.Ended() || errors.Is(err, store.ErrClosed):
		return store.ErrClosed
	case wal.NoSpace(err):
		// Not l.Writable(): even if there is space again by now, this record is not in
		// the log.
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

// ReadOnly refuses writes for a reason that is not a failure. It must be called before
// Open.
func (l *Log) ReadOnly(reason string) {
	l.failure.Store(&store.UnavailableError{Reason: reason})
}

// Failure returns why writes are refused for good, nil if nothing has failed.
func (l *Log) Failure() error {
	if e := l.failure.Load(); e != nil {
		return e
	}
	return nil
}

// Writable returns why writes are refused, nil if they are accepted.
func (l *Log) Writable() error {
	if err := l.Failure(); err != nil {
		return err
	}
	return l.options.Disk.Err()
}

// Durable is Writable, after all records that were acknowledged before are durable. So
// data that is then stored elsewhere never refers to records that a power cut has lost.
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
func (l *Log) CheckOpen(ctx context.Context) error { return l.life.Check(ctx) }

// Closed reports whether Shut was called.
func (l *Log) Closed() bool { return l.life.Ended() }

// Shut refuses further calls, so that Close can follow. A second call returns
// store.ErrClosed.
func (l *Log) Shut() error { return l.life.End() }

// Close writes and syncs what was appended. It returns the log's failure if there is one.
func (l *Log) Close() error {
	if log := l.current.Load(); log != nil {
		return log.Close()
	}
	return nil
}
