package diskfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func TestLockToRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "LOCK")
	disk := Reading.(reading)
	lock, held, err := disk.LockToRead(name)
	if err != nil || held || lock.Close() != nil {
		t.Fatalf("no lock file: held %v, %v", held, err)
	}
	if _, err := os.Stat(name); err == nil {
		t.Error("a lock file was made")
	}
	server, err := vfs.Default.Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // looking must not take the lock away
		if _, held, err := disk.LockToRead(name); !held || err == nil {
			t.Errorf("held for writing: held %v, %v", held, err)
		}
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, 0o444); err != nil {
		t.Fatal(err)
	}
	for range 2 { // one beside the other
		lock, held, err := disk.LockToRead(name)
		if err != nil || held {
			t.Fatalf("held by nobody: held %v, %v", held, err)
		}
		defer lock.Close()
	}
	if _, err := vfs.Default.Lock(name); err == nil {
		t.Error("a server starts while the directory is read")
	}
}
