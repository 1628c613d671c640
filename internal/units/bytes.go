// Package units holds number types that people write with a unit in
// configuration files.
package units

import (
	"fmt"
	"strconv"
	"strings"
)

// Bytes is a size, written as a plain number or with one of the suffixes
// KiB, MiB, GiB (powers of 1024) and kB, MB, GB (powers of 1000).
type Bytes int64

const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
)

var suffixes = []struct {
	name string
	size Bytes
}{
	{"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB},
	{"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1},
}

// UnmarshalText parses a size.
func (b *Bytes) UnmarshalText(text []byte) error {
	s, scale := strings.TrimSpace(string(text)), Bytes(1)
	for _, x := range suffixes {
		if rest, ok := strings.CutSuffix(s, x.name); ok {
			s, scale = strings.TrimSpace(rest), x.size
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return fmt.Errorf("size %q: want a whole number, or one with KiB, MiB, GiB, kB, MB or GB", text)
	}
	if v := n * int64(scale); v/int64(scale) == n {
		*b = Bytes(v)
		return nil
	}
	return fmt.Errorf("size %q does not fit 64 bits", text)
}

// MarshalText writes the size with the largest binary suffix that is exact.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

func (b Bytes) String() string {
	for _, x := range suffixes[:3] {
		if b != 0 && b%x.size == 0 {
			return strconv.FormatInt(int64(b/x.size), 10) + x.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// Text is the size for messages: rounded, with a binary unit.
func (b Bytes) Text() string {
	switch {
	case b >= 10*GiB:
		return fmt.Sprintf("%.1f GiB", float64(b)/float64(GiB))
	case b >= 10*MiB:
		return fmt.Sprintf("%.1f MiB", float64(b)/float64(MiB))
	case b >= 10*KiB:
		return fmt.Sprintf("%.1f KiB", float64(b)/float64(KiB))
	}
	return fmt.Sprintf("%d bytes", int64(b))
}
