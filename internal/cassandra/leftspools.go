package cassandra

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/downsample"
	"varve/internal/spool"
)

// CheckLeftSpools reports acknowledged samples below dir that wait for Cassandra, for a server that
// would not write or show them. why says so, and what to do.
func CheckLeftSpools(fsys vfs.FS, dir string, cfg spool.Config, why string) error {
	dirs := []string{fsys.PathJoin(dir, spoolName)}
	all := fsys.PathJoin(dir, spoolsName)
	names, err := fsys.List(all)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("check whether samples wait for Cassandra: %w", err)
	}
	for _, name := range names {
		if checkFileName(name) == nil { // otherwise not a spool
			dirs = append(dirs, fsys.PathJoin(all, name))
		}
	}
	var errs []error
	for _, d := range dirs {
		errs = append(errs, checkLeftSpool(fsys, d, cfg, why))
	}
	return errors.Join(errs...)
}

func checkLeftSpool(fsys vfs.FS, dir string, cfg spool.Config, why string) error {
	if _, err := fsys.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	left, err := lookInto(fsys, dir, cfg)
	if err != nil {
		return fmt.Errorf("check whether samples in %s wait for Cassandra: %w", dir, err)
	}
	if left.waiting == 0 {
		return nil
	}
	return fmt.Errorf("%d samples in %s wait for %s, %s", left.waiting, dir, left.owner, why)
}

// A leftSpool is a spool that is no longer used.
type leftSpool struct {
	dir     string
	owner   target            // the keyspace for which its samples wait
	waiting int64             // samples
	unnoted *downsample.Hours // hours of samples whose roll-ups must be recomputed, which is not recorded elsewhere
}

// lookInto reads the spool in dir.
func lookInto(fsys vfs.FS, dir string, cfg spool.Config) (l leftSpool, err error) {
	left, err := spool.Open(fsys, dir, cfg, spool.Options{Section: "cassandra.spool"})
	if err != nil {
		return l, err
	}
	file := &targetFile{fs: fsys, dir: dir}
	l = leftSpool{dir: dir, waiting: left.Health().Samples, unnoted: left.Notes().Unnoted()}
	err = errors.Join(file.read(), left.Close())
	l.owner = file.now
	return l, err
}
