//go:build unix

package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// someone is a user and group that need not exist.
const someone = 4711

// asRoot skips a test that only root can run, loudly: CI runs as root.
func asRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT RUN: giving files to other users takes root; run this test as root")
	}
}

// wantOwner holds user, group and permissions of a file against what they should be.
func wantOwner(t *testing.T, path string, user, group uint32, perm fs.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if s := info.Sys().(*syscall.Stat_t); s.Uid != user || s.Gid != group || info.Mode().Perm() != perm {
		t.Errorf("%s belongs to %d:%d with mode %o, want %d:%d and %o", filepath.Base(path), s.Uid, s.Gid, info.Mode().Perm(), user, group, perm)
	}
}

// TestCreateOwned: what root creates belongs to the owner of the directory. What is there, or
// leads elsewhere, stays as it is.
func TestCreateOwned(t *testing.T) {
	asRoot(t)
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "elsewhere")
	if err := os.Chown(dir, someone, someone); err != nil {
		t.Fatal(err)
	}
	path, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	f, err := CreateOwned(path, os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	wantOwner(t, path, someone, someone, 0o600)
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	for _, there := range []string{path, link} {
		if f, err := CreateOwned(there, os.O_WRONLY, 0o600); !errors.Is(err, fs.ErrExist) || f != nil {
			t.Errorf("%s is created: %v", there, err)
		}
	}
	if _, err := os.Lstat(elsewhere); err == nil {
		t.Error("a link is followed")
	}
}

// TestAdopt: a file that replaces another one has its owner and permissions, and its group if that
// has any.
func TestAdopt(t *testing.T) {
	asRoot(t)
	for _, c := range []struct {
		user, group int // of the old file
		perm        fs.FileMode
		wantGroup   uint32
	}{
		{someone, someone, 0o640, someone},
		{someone, someone, 0o600, someone},
		{someone, os.Getegid(), 0o600, uint32(os.Getegid())},
		{os.Geteuid(), someone, 0o640, someone},
		{os.Geteuid(), someone, 0o604, uint32(os.Getegid())},
	} {
		dir := t.TempDir()
		old, next := filepath.Join(dir, "old"), filepath.Join(dir, "next")
		for _, path := range []string{old, next} {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(os.Chown(old, c.user, c.group), os.Chmod(old, c.perm)); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(old)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(next, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(Adopt(f, info), f.Close()); err != nil {
			t.Fatal(err)
		}
		if err := Adopt(f, info); !errors.Is(err, os.ErrClosed) {
			t.Errorf("a closed file is adopted: %v", err)
		}
		wantOwner(t, next, uint32(c.user), c.wantGroup, c.perm)
	}
}
