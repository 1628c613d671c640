package datadir

import (
	"errors"
	"io/fs"
	"testing"
)

// TestUnusableLockIsNotInUse: only a lock that is held means that a server runs.
func TestUnusableLockIsNotInUse(t *testing.T) {
	err := lockError("data", &fs.PathError{Op: "open", Path: "data/LOCK", Err: fs.ErrPermission}, false)
	if errors.As(err, new(*LockedError)) || err.Error() != "find out whether data directory data is in use: open data/LOCK: permission denied" {
		t.Errorf("a lock that may not be read: %v", err)
	}
}
