package local

import (
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// sparingly is the file system as Pebble sees it. Pebble allocates as much for each log as
// a memtable takes: for timelines that hardly anyone uses, most of what they take on disk.
// Here logs are allocated as they grow.
type sparingly struct{ vfs.FS }

// Create implements [vfs.FS].
func (fs sparingly) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, category)
	if err != nil || !strings.HasSuffix(name, ".log") {
		return f, err
	}
	return growing{f}, nil
}

// Unwrap implements [vfs.FS].
func (fs sparingly) Unwrap() vfs.FS { return fs.FS }

type growing struct{ vfs.File }

// Preallocate implements [vfs.File].
func (growing) Preallocate(_, _ int64) error { return nil }
