package units

import (
	"math"
	"testing"
	"testing/quick"
)

func TestBytesParse(t *testing.T) {
	for text, want := range map[string]Bytes{
		"0": 0, "12": 12, "12B": 12, "1KiB": 1024, "1 KiB": 1024, " 64MiB ": 64 << 20, "2GiB": 2 << 30,
		"1kB": 1000, "3MB": 3e6, "4GB": 4e9, "-1": -1, "-1KiB": -1024,
		"9223372036854775807": math.MaxInt64, "-8589934592GiB": math.MinInt64,
	} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err != nil || b != want {
			t.Errorf("%q = %d, %v, want %d", text, b, err, want)
		}
	}
	for _, text := range []string{"", "B", "KiB", "1.5MiB", "1K", "1kb", "1TiB", "1 2", "0x10", "9223372036854775808", "8589934592GiB", "99999999999GB"} {
		b := Bytes(7)
		if err := b.UnmarshalText([]byte(text)); err == nil || b != 7 {
			t.Errorf("%q = %d, %v, want an error and no change", text, b, err)
		}
	}
}

func TestBytesString(t *testing.T) {
	for b, want := range map[Bytes]string{
		0: "0", 1: "1", 1000: "1000", 1023: "1023", 1024: "1KiB", 1025: "1025", 1536: "1536", 64 * MiB: "64MiB",
		GiB: "1GiB", 1024 * GiB: "1024GiB", -1: "-1", -2 * KiB: "-2KiB", math.MinInt64: "-8589934592GiB",
	} {
		if got := b.String(); got != want {
			t.Errorf("%d = %s, want %s", int64(b), got, want)
		}
	}
}

func TestBytesText(t *testing.T) {
	for b, want := range map[Bytes]string{
		0: "0 bytes", 10*KiB - 1: "10239 bytes", 10 * KiB: "10.0 KiB", 10*MiB - 1: "10240.0 KiB", 10 * MiB: "10.0 MiB",
		10*GiB - 1: "10240.0 MiB", 10 * GiB: "10.0 GiB", 3 * 1024 * GiB: "3072.0 GiB", -10 * KiB: "-10240 bytes",
	} {
		if got := b.Text(); got != want {
			t.Errorf("%d = %s, want %s", int64(b), got, want)
		}
	}
}

func TestBytesRoundTrip(t *testing.T) {
	same := func(n int64, shift uint8) bool {
		b := Bytes(n << (shift % 64))
		text, err := b.MarshalText()
		var got Bytes
		return err == nil && got.UnmarshalText(text) == nil && got == b
	}
	if err := quick.Check(same, nil); err != nil {
		t.Error(err)
	}
}

func TestCount(t *testing.T) {
	if got := Count(0, "line") + ", " + Count(1, "line") + ", " + Count(int64(2), "line"); got != "0 lines, 1 line, 2 lines" {
		t.Error(got)
	}
}
