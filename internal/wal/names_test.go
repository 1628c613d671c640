package wal

import "testing"

// TestNamesOfSegments: only files of the log's own are taken for segments. The others in its
// directory are left alone, and not opened, counted or removed.
func TestNamesOfSegments(t *testing.T) {
	for name, want := range map[string]Segment{
		"0000000001.wal": 1, "0000000012.free": 12, "4611686018427387904.wal": 1 << 62, // as many digits as it takes
		"": 0, "wal": 0, ".wal": 0, "1.wal": 0, "000000001.wal": 0, "0000000000.wal": 0, "4611686018427387905.wal": 0, "00000000x1.wal": 0, "-000000001.wal": 0,
		"0000000001": 0, "0000000001.": 0, "0000000001.tmp": 0, "0000000001.wal.gz": 0, "0000000001wal": 0, "99999999999999999999.wal": 0,
	} {
		got, suffix, ok := parseName(name)
		if got != want || ok != (want != 0) || (suffix == "") == ok {
			t.Errorf("%q is segment %d with suffix %q, %t; want %d", name, got, suffix, ok, want)
		}
	}
}
