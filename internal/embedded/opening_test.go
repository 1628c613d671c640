package embedded

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/embedded/datadir"
)

// messages passes the messages of a log on.
type messages struct {
	slog.Handler
	to chan<- string
}

func (m messages) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

func (m messages) Handle(_ context.Context, r slog.Record) error {
	select {
	case m.to <- r.Message:
	default:
	}
	return nil
}

// A store on a full disk does not open before there is space. Meanwhile it says what it waits
// for, and its log repeats one message, however many files it tries to write.
func TestOpenOnFullDisk(t *testing.T) {
	mem := crashfs.New()
	s := mustOpen(t, mem, quietConfig("fsync"))
	s.must(t, appendMany(t, s))
	s.must(t, s.checkpoint()) // the catalogue's log has what is in no table of it yet
	killed := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	s.must(t, s.Close())

	var full atomic.Bool
	full.Store(true)
	disk := errorfs.Wrap(killed, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpFileWrite && strings.Contains(op.Path, datadir.Catalogue) && strings.HasSuffix(op.Path, ".sst") {
			return syscall.ENOSPC
		}
		return nil
	}))
	told := make(chan string, 1)
	var opening Opening
	opened := make(chan error, 1)
	go func() {
		again, err := Open(disk, "data", quietConfig("fsync"), Options{Opening: &opening, Logger: slog.New(messages{slog.DiscardHandler, told})})
		if err == nil {
			err = again.Close()
		}
		opened <- err
	}()
	for range 3 {
		select {
		case message := <-told:
			if message != "catalogue: background error, will retry" {
				t.Errorf("the log says %q", message)
			}
		case err := <-opened:
			t.Fatalf("the store was opened on a full disk: %v", err)
		}
	}
	if text := opening.String(); text != "0 %: the disk is full; opening continues when there is space" {
		t.Errorf("it waits at %q", text)
	}
	full.Store(false)
	if err := <-opened; err != nil {
		t.Error(err)
	}
}
