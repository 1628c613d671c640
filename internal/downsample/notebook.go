package downsample

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/safefile"
	"varve/internal/store"
)

// A notebook keeps a node's late list in files, one per task, if the store is shared
// with other nodes and may be unavailable. A file also contains the task. So a node
// that starts while the store is unavailable notes the buckets of late points of
// the tasks that it knew before. For tasks that it does not know it notes hours:
// see Journal.
//
// The files concern this node alone: other nodes get the notes when they are handed
// over.
type notebook struct {
	fs   vfs.FS
	dir  string
	what string // what a task is called in messages
}

// A page is the content of a task's file.
type page struct {
	ID   string           `json:"id"`
	Task json.RawMessage  `json:"task"`
	Late map[string]Spans `json:"late"` // by target
}

const (
	unreadName = "unread" // file in which an earlier version kept hours
	pageSuffix = ".json"
	pageMax    = 256 << 20 // larger than the file of any list
)

func openNotebook(fs vfs.FS, dir, what string) (*notebook, error) {
	b := &notebook{fs: fs, dir: dir, what: what}
	if err := fs.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("create the directory for notes of late points: %w", err)
	}
	for _, d := range []string{fs.PathDir(dir), dir} {
		if err := safefile.SyncDir(fs, d); err != nil {
			return nil, fmt.Errorf("create the directory for notes of late points: %w", err)
		}
	}
	return b, nil
}

// path is the file of a task. The id may contain any bytes.
func (b *notebook) path(id string) string {
	sum := sha256.Sum256([]byte(id))
	return b.fs.PathJoin(b.dir, hex.EncodeToString(sum[:16])+pageSuffix)
}

// pages reads all files. It removes unfinished files that a crash left behind.
func (b *notebook) pages() ([]page, error) {
	names, err := b.fs.List(b.dir)
	if err != nil {
		return nil, fmt.Errorf("list notes of late points: %w", err)
	}
	var all []page
	for _, name := range names {
		path := b.fs.PathJoin(b.dir, name)
		if name == unreadName {
			continue
		}
		if !strings.HasSuffix(name, pageSuffix) {
			if err := b.fs.Remove(path); err != nil {
				return nil, fmt.Errorf("remove an unfinished note of late points: %w", err)
			}
			continue
		}
		var p page
		if err := safefile.ReadObject(b.fs, path, pageMax, &p); err != nil {
			return nil, fmt.Errorf("read notes of late points from %s: %w; if the file cannot be restored, remove it: "+
				"buckets of points that arrived late are then not recomputed", path, err)
		}
		all = append(all, p)
	}
	return all, nil
}

// write replaces the file of a task atomically: after a crash, either the old or the
// new file is there. An error is a *store.UnavailableError, so that senders retry
// while the disk is full.
func (b *notebook) write(p page) error {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // numbers and parsed JSON always marshal
	}
	path := b.path(p.ID)
	if err := safefile.Replace(b.fs, path, safefile.Seal(text)); err != nil {
		return &store.UnavailableError{Reason: fmt.Sprintf("cannot record late points of %s %s in %s; free some space, or fix the disk", b.what, p.ID, path), Err: err}
	}
	return nil
}

// remove forgets a task. If its file cannot be removed, the next restart removes it
// when the tasks are read.
func (b *notebook) remove(id string) { _ = b.fs.Remove(b.path(id)) }

// unread reads the hours that an earlier version has stored.
func (b *notebook) unread() (h Hours, err error) {
	path := b.fs.PathJoin(b.dir, unreadName)
	text, err := safefile.Read(b.fs, path, pageMax)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err == nil {
		err = h.Parse(text)
	}
	if err != nil {
		return Hours{}, fmt.Errorf("read notes of late points from %s: %w; if the file cannot be restored, remove it: "+
			"buckets of points that arrived late before the tasks were known are then not recomputed", path, err)
	}
	return h, nil
}

func (b *notebook) removeUnread() error {
	err := b.fs.Remove(b.fs.PathJoin(b.dir, unreadName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
