package spooled

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/safefile"
	"varve/internal/wal"
)

// targetName is the file beside the log that names the keyspace of its events.
const (
	targetName     = "target"
	targetBytesMax = 1 << 20
)

// A target is the content of that file.
type target struct {
	Keyspace string `json:"keyspace"`
}

// A MisdirectedError means that events wait for another keyspace than the one that the
// settings name.
type MisdirectedError struct {
	Dir      string
	Events   int64
	For, Now string // keyspaces
}

func (e *MisdirectedError) Error() string {
	return fmt.Sprintf("%d events of timelines in %s wait for keyspace %s, but the settings name keyspace %s. Start with the previous settings and POST /admin/flush; "+
		"or start with another data_dir, and keep this one until its events are stored; "+
		"or, if this is the same data under another name, remove the file %s/%s, and they are stored here",
		e.Events, e.Dir, e.For, e.Now, e.Dir, targetName)
}

// CheckLeft returns an error if acknowledged events in dir wait for Cassandra. It is for a server
// that would never store or show these events. why explains that, and what to do.
func CheckLeft(fsys vfs.FS, dir, why string) error {
	n, owner, err := waiting(fsys, dir)
	if err != nil {
		return err
	}
	if n > 0 {
		return fmt.Errorf("%d events of timelines in %s wait for keyspace %s, %s", n, dir, owner.Keyspace, why)
	}
	return nil
}

// Waiting counts the acknowledged events in dir that wait for Cassandra.
func Waiting(fsys vfs.FS, dir string) (int64, error) {
	n, _, err := waiting(fsys, dir)
	return n, err
}

func waiting(fsys vfs.FS, dir string) (int64, target, error) {
	if _, err := fsys.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return 0, target{}, nil
	}
	s := &Spool{fs: fsys, dir: dir}
	err := s.replay()
	owner, targetErr := s.readTarget()
	if err = errors.Join(err, targetErr); err != nil {
		err = fmt.Errorf("check whether events of timelines in %s wait for Cassandra: %w", dir, err)
	}
	return s.waiting.Load(), owner, err
}

// aim returns an error if events wait for another keyspace than the configured one, and writes the
// target for the events to come. A full disk must not keep a server from starting and draining:
// the target is then removed, and the next start accepts any keyspace.
func (s *Spool) aim() error {
	before, err := s.readTarget()
	if err != nil {
		return err
	}
	now := target{s.options.Keyspace}
	if n := s.waiting.Load(); n > 0 && before.Keyspace != "" && before != now {
		return &MisdirectedError{Dir: s.dir, Events: n, For: before.Keyspace, Now: now.Keyspace}
	}
	if before == now {
		return nil
	}
	if s.log.Full() { // a target without a log would mean that the log is missing
		return s.removeTarget()
	}
	err = safefile.ReplaceObject(s.fs, s.targetPath(), now)
	if wal.NoSpace(err) {
		err = s.removeTarget()
	}
	if err != nil {
		return fmt.Errorf("record which keyspace events wait for: %w", err)
	}
	return nil
}

// tellOfMissingLog logs an error if the directory was in use and has no log, for example after a
// restore without it. It does not fail: whether events were waiting is unknown.
func (s *Spool) tellOfMissingLog() error {
	segments, err := wal.Segments(s.fs, s.dir)
	if err != nil || len(segments) > 0 {
		return err
	}
	if before, err := s.readTarget(); err != nil || before.Keyspace == "" {
		return err
	}
	s.logger.Error("the write-ahead log of the spool of timelines is missing, so the spool starts empty. Events that waited there for Cassandra will not be put into their timelines. "+
		"To keep them, stop the server, put the log back, and start again", "log", s.dir)
	return nil
}

func (s *Spool) targetPath() string { return s.fs.PathJoin(s.dir, targetName) }

// readTarget returns the content of the file, the zero target if there is none: earlier versions
// wrote none, nor does a server with a full disk.
func (s *Spool) readTarget() (t target, err error) {
	err = safefile.ReadObject(s.fs, s.targetPath(), targetBytesMax, &t)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		err = fmt.Errorf("read which keyspace events wait for, from %s: %w; if the settings name that keyspace and the file cannot be restored, remove it", s.targetPath(), err)
	}
	return t, err
}

func (s *Spool) removeTarget() error { return safefile.Remove(s.fs, s.targetPath()) }
