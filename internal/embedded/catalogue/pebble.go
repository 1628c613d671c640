package catalogue

import (
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// OpenPebble opens a database of Pebble in dir as the catalogue is opened: its log and its
// list of tables are verified first, its markers survive a power cut, its version is
// pinned, and failures in the background come to an end. With fresh it is created if
// it is not there. o says the rest.
func OpenPebble(fs vfs.FS, dir string, fresh bool, o *pebble.Options) (*pebble.DB, error) {
	if err := Verify(fs, dir); err != nil {
		return nil, err
	}
	o.FS = fileSystem{fs, dir, o.Logger}
	o.FormatMajorVersion = format
	o.EventListener = (&backgroundErrors{log: o.Logger}).listener()
	if err := createPebble(dir, o, fresh); err != nil {
		return nil, err
	}
	return pebble.Open(dir, o)
}
