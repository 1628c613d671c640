package catalogue

import (
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A disk is a file system with so much room.
type disk struct {
	vfs.FS
	available uint64
}

func (d disk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.available, TotalBytes: 1 << 40}, nil
}

// If the disk may be too full for an open, Pebble reads no statistics meanwhile: see fullDisk.
func TestOpenOnFullDisk(t *testing.T) {
	for available, without := range map[uint64]bool{0: true, roomToOpen - 1: true, roomToOpen: false} {
		o := &pebble.Options{Logger: pebble.DefaultLogger}
		db, err := OpenPebble(disk{vfs.NewMem(), available}, "db", true, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if o.DisableTableStats != without {
			t.Errorf("with %d bytes free, tables are read beside the open: %t, want %t", available, !o.DisableTableStats, !without)
		}
	}
}
