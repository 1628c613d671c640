package spooled

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/safefile"
	"varve/internal/wal"
)

// targetName is the file beside the log that says for which keyspace its events are.
const targetName = "target"

// A target is what the file says.
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

// CheckLeft reports events in dir that were acknowledged and wait for Cassandra, for a server
// that does not use Cassandra any more: it would show none of them.
func CheckLeft(fsys vfs.FS, dir string) error {
	n, owner, err := waiting(fsys, dir)
	if err != nil {
		return err
	}
	if n > 0 {
		return fmt.Errorf("%d events of timelines in %s wait for keyspace %s, but the settings say store: embedded. Start with store: cassandra and POST /admin/flush; "+
			"or start with another data_dir, and keep this one until its events are stored; or remove the directory, and they are lost", n, dir, owner.Keyspace)
	}
	return nil
}

// Waiting counts the events in dir that were acknowledged and wait for Cassandra.
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

// aim refuses another keyspace than the one that events wait for, and notes down for which one
// those are that come from here on. A full disk must not keep a server from starting and from
// draining: then the note is missing, and whatever the next start names is taken.
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
	if s.log.Full() { // beside a target, no log means that it is missing
		return s.removeTarget()
	}
	text, err := json.Marshal(now)
	if err == nil {
		err = safefile.Replace(s.fs, s.targetPath(), append(text, '\n'))
	}
	if wal.NoSpace(err) {
		err = s.removeTarget()
	}
	if err != nil {
		return fmt.Errorf("record which keyspace events wait for: %w", err)
	}
	return nil
}

// tellOfMissingLog logs an error if the directory was in use and has no log, as after a restore
// without it, but lets the spool open: nothing else tells whether events were waiting there.
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

// readTarget returns what the file says, nothing if an earlier version or a full disk has left
// none.
func (s *Spool) readTarget() (t target, err error) {
	file, err := s.fs.Open(s.targetPath())
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err == nil {
		defer file.Close()
		var text []byte
		if text, err = io.ReadAll(io.LimitReader(file, 1<<20)); err == nil {
			err = json.Unmarshal(text, &t)
		}
	}
	if err != nil {
		err = fmt.Errorf("read which keyspace events wait for, from %s: %w", s.targetPath(), err)
	}
	return t, err
}

func (s *Spool) removeTarget() error {
	err := s.fs.Remove(s.targetPath())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, safefile.SyncDir(s.fs, s.dir))
}
