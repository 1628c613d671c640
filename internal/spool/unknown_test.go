package spool

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/wal"
)

// TestUnusableRecords: a record that is whole, but that this build cannot use, ends the
// opening. Its samples were acknowledged: continuing without them would lose them silently.
func TestUnusableRecords(t *testing.T) {
	stamp := func(ms int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(ms)) }
	for name, r := range map[string]struct {
		typ     byte
		payload []byte
		want    string
	}{
		"a type of a later build":        {200, []byte("x"), "unknown type 200: use a newer build"},
		"a batch without a stamp":        {typeBatch, stamp(1)[:stampSize-1], "no write timestamp"},
		"a stamp before 1970":            {typeBatch, stamp(0), "write timestamp 0, which is out of range"},
		"a stamp too far in the future":  {typeBatch, stamp(maxMark + 1), "out of range"},
		"a mark that is too short":       {typeCut, []byte("x"), "expected 40 bytes, got 1"},
		"a mark of a segment to come":    {typeFloor, mark{number: 1, floorMS: 2, from: 1 << 60}.append(nil), "which comes after it"},
		"a stamp, and then half a batch": {typeBatch, append(stamp(1), 0xff), ""},
	} {
		fs := vfs.NewMem()
		log, err := wal.Open(fs, "spool/log", wal.DefaultConfig(), wal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		log.Append(r.typ, r.payload)
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		s, err := Open(fs, "spool", tinyConfig(), quickRetries(Options{}))
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), r.want) {
			t.Errorf("%s: %v, want ...%s", name, err, r.want)
		}
	}
}
