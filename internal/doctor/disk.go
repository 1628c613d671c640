package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/config"
	"varve/internal/diskfs"
	"varve/internal/embedded/datadir"
)

// inUse reports whether a server holds the data directory.
func inUse(dir string) bool {
	for _, d := range []string{dir, filepath.Join(dir, "spool")} {
		lock, err := datadir.LockToRead(diskfs.Reading, d)
		if err == nil {
			lock.Close()
		}
		if errors.As(err, new(*datadir.LockedError)) {
			return true
		}
	}
	return false
}

// directories checks the data directory and the backup directory.
func directories(c config.Config, running bool) []Finding {
	least, key := int64(c.Embedded.MinFreeBytes), "embedded.min_free_bytes"
	if c.Store == config.Cassandra {
		least, key = int64(c.Cassandra.Spool.MinFreeBytes), "cassandra.spool.min_free_bytes"
	}
	found := []Finding{directory("data directory", c.DataDir, running)}
	at, exists := nearest(c.DataDir)
	if !exists {
		found[0].Text += ", will be created"
	}
	if err := unusable(c.DataDir); exists && found[0].Grade != Fault && err != nil {
		found[0] = Finding{found[0].Check, Fault, err.Error(), datadir.OwnerAdvice(c.DataDir)}
	}
	found = append(found, fileSystem(at), space("disk space", at, least, key))
	if c.Store == config.Embedded {
		// Memory beyond that of a small machine is used only while the disk has room for it.
		found = append(found, reserve(least, int64(c.Embedded.LargestHead(0)))...)
	}
	if dir := c.Embedded.BackupDir; dir != "" && c.Store == config.Embedded {
		at, _ := nearest(dir)
		found = append(found, directory("backup directory", dir, running), space("backup space", at, least, key))
	}
	return found
}

// nearest returns the absolute path of dir, or of its nearest ancestor that exists.
func nearest(dir string) (at string, exists bool) {
	at, err := filepath.Abs(dir)
	if err != nil {
		return dir, false
	}
	for exists = true; ; exists = false {
		if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			return at, exists
		}
		at = filepath.Dir(at)
	}
}

// directory checks whether this user can write to dir, and whether others can read it.
func directory(check, dir string, running bool) Finding {
	at, exists := nearest(dir)
	info, err := os.Stat(at)
	if err == nil && !info.IsDir() {
		return Finding{check, Fault, at + " is a file", "name a directory"}
	}
	if err == nil {
		err = tryWriting(at)
	}
	if errors.Is(err, syscall.EROFS) {
		return Finding{check, Fault, err.Error(), datadir.ReadOnlyAdvice(at)}
	}
	if err != nil {
		return Finding{check, Fault, err.Error(), "run varve doctor as the user of the server; if it is that user, chown the directory to it"}
	}
	owner, known := ownerOf(info)
	switch {
	case exists && known && os.Geteuid() == 0 && owner != 0:
		return Finding{check, Warning, fmt.Sprintf("%s belongs to user %d, and varve doctor runs as root: it cannot check the rights of the server", at, owner),
			"run varve doctor as the user of the server; never run the server as root, its files would belong to root"}
	case exists && info.Mode().Perm()&0o007 != 0 && worldMatters:
		return Finding{check, Warning, fmt.Sprintf("%s has mode %o: all users of the machine can read the data", at, info.Mode().Perm()), "chmod o= " + at}
	case running:
		return ok(check, "%s, in use by a server", dir)
	}
	return ok(check, "%s", dir)
}

// unusable returns an error for a file or directory of the server in its data directory that this
// user may not use. The server writes to all directories, and to the locks.
func unusable(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil // directory has reported it
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // a running server has removed it
			return nil
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == datadir.Backups || d.Name() == datadir.Quarantine || d.Name() == "lost+found"):
			return filepath.SkipDir
		case filepath.Dir(path) == dir && d.Name()[0] == '.': // of a user whose home this is
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		err = mayUse(path, d.IsDir() || d.Name() == datadir.LockFile)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

// tryWriting creates a file in dir and removes it.
func tryWriting(dir string) error {
	f, err := os.CreateTemp(dir, ".varve-doctor-")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// space compares the free space with the space that the server keeps free.
func space(check, dir string, least int64, key string) Finding {
	usage, err := vfs.Default.GetDiskUsage(dir)
	if err != nil {
		return Finding{check, Warning, err.Error(), "find out why the file system does not report its free space; the server cannot stop writing before the disk is full"}
	}
	return spaceLeft(check, int64(usage.AvailBytes), int64(usage.TotalBytes), least, key)
}

func spaceLeft(check string, free, total, least int64, key string) Finding {
	text := fmt.Sprintf("%s of %s are free", size(free), size(total))
	const do = "free space on the disk, or use a larger one; in the data directory, delete nothing by hand except backups"
	switch {
	case total <= least+least/4:
		return Finding{check, Fault, fmt.Sprintf("%s, and %s of %s is too large for this disk: once writes have stopped, they would not resume below %s", text, key, size(least), size(least+least/4)),
			"use a larger disk, or set " + key + " to a tenth of this one"}
	case free < least:
		return Finding{check, Fault, fmt.Sprintf("%s, less than %s of %s: writes are refused", text, key, size(least)), do}
	case free < total/5:
		return Finding{check, Warning, text + ", less than a fifth: merges need room for the largest partition", do}
	}
	return ok(check, "%s", text)
}

// reserve checks whether the samples in memory fit into the space that is kept free. If they
// do not, the store may accept samples that it cannot write to files once the disk is full.
func reserve(least, head int64) []Finding {
	if least == 0 || least >= head {
		return nil
	}
	return []Finding{{"disk space", Warning, fmt.Sprintf("embedded.min_free_bytes of %s is less than embedded.head_bytes_max of %s: on a full disk samples in memory may not fit into files", size(least), size(head)),
		"set embedded.min_free_bytes to embedded.head_bytes_max or more"}}
}

// fileSystem checks whether dir is on a file system that preserves synced data.
func fileSystem(dir string) Finding {
	const check = "file system"
	kind, known := kindOf(dir)
	if !known {
		return ok(check, "its kind is not known on this system")
	}
	return judgeKind(kind)
}

func judgeKind(kind string) Finding {
	const check = "file system"
	switch kind {
	case "ext4", "xfs", "btrfs", "zfs", "f2fs":
		return ok(check, "%s", kind)
	case "tmpfs":
		return Finding{check, Fault, "tmpfs: the data is lost when the machine restarts", "use a directory on a disk"}
	case "nfs", "cifs", "smb2", "fuse", "ceph", "9p":
		return Finding{check, Warning, kind + ": locks and syncs may not work as promised, and syncs are slow", "use a local disk or a block device"}
	case "overlayfs":
		return Finding{check, Warning, "overlayfs: this is the container's own layer, which is removed with the container", "mount a volume at the data directory"}
	}
	return Finding{check, Warning, "not tested on this kind of file system: " + kind, "use ext4 or xfs"}
}
