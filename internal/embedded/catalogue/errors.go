package catalogue

import (
	"errors"
	"io/fs"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"varve/internal/store"
	"varve/internal/wal"
)

// Damage returns an error of Pebble about damage to its database in dir as a CorruptionError. Other
// errors remain as they are.
func Damage(err error, dir string) error {
	if !pebble.IsCorruptionError(err) {
		return err
	}
	return &store.CorruptionError{File: dir, Offset: -1, Reason: FirstLine(err)}
}

// tableDamage returns an error of opening a database in dir as a CorruptionError if a table is missing
// or has another length than the list of tables says. Pebble does not report these cases as
// corruption.
func tableDamage(err error, dir string) error {
	if !errors.Is(err, fs.ErrNotExist) && !strings.Contains(err.Error(), "object size mismatch") {
		return err
	}
	return &store.CorruptionError{File: dir, Offset: -1, Reason: FirstLine(err)}
}

// FirstLine is the text of an error of Pebble without the details and stack traces that may follow.
func FirstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

const (
	// backgroundErrorsMax is the number of consecutive failures after which the catalogue's disk
	// counts as broken.
	backgroundErrorsMax = 10

	// backgroundPause is multiplied by the number of failures in a row, at most by ten.
	backgroundPause = 20 * time.Millisecond
)

// backgroundErrors counts failures of Pebble's background work, flushes and compactions. Pebble
// retries at once and for ever, also while it starts; with a broken disk that would be a busy loop
// that fills the log. So there is a pause before each retry, and an end after too many. A server
// waits on a full disk, where space may be freed.
type backgroundErrors struct {
	log   pebble.Logger
	inRow atomic.Int64
}

func (b *backgroundErrors) listener() *pebble.EventListener {
	done := func(err error) {
		if err == nil {
			b.inRow.Store(0)
		}
	}
	return &pebble.EventListener{
		BackgroundError: b.failed,
		FlushEnd:        func(i pebble.FlushInfo) { done(i.Err) },
		CompactionEnd:   func(i pebble.CompactionInfo) { done(i.Err) },

		// By default Pebble ends the process. Here, a read that needs the damaged part
		// returns an error, and all other reads work.
		DataCorruption: func(i pebble.DataCorruptionInfo) { b.log.Errorf("%s is damaged: %s", i.Path, FirstLine(i.Details)) },
	}
}

func (b *backgroundErrors) failed(err error) {
	n := b.inRow.Add(1)
	l, _ := b.log.(Logger)
	if n >= backgroundErrorsMax && (l.EndWhenFull || !wal.NoSpace(err)) {
		b.log.Fatalf("%d failures in a row, the last: %v", n, err)
		return
	}
	if l.Failed != nil {
		l.Failed(err)
	}
	b.log.Errorf("background error, will retry: %v", err)
	time.Sleep(min(time.Duration(n), 10) * backgroundPause)
}
