package rowtime

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"varve/internal/model"
)

// Unit says how a keyspace writes columns: row_time_unit in KairosDB's table
// spec.
type Unit uint8

const (
	Milliseconds Unit = iota // fresh keyspaces of KairosDB 1.3
	Seconds
	Legacy // KairosDB before 1.3: milliseconds, shifted left by one bit
)

// DefaultWidth is three weeks, KairosDB's default, in milliseconds.
const DefaultWidth = 1814400000

// Default is the row arithmetic of a new store.
var Default = Spec{Width: DefaultWidth, Unit: Milliseconds}

// ParseUnit reads row_time_unit. KairosDB accepts each name of Java's TimeUnit
// and treats all but SECONDS as milliseconds.
func ParseUnit(name string) (Unit, error) {
	switch name {
	case "MILLISECONDS", "NANOSECONDS", "MICROSECONDS", "MINUTES", "HOURS", "DAYS":
		return Milliseconds, nil
	case "SECONDS":
		return Seconds, nil
	case "LEGACY":
		return Legacy, nil
	}
	return 0, fmt.Errorf("row_time_unit %q: want MILLISECONDS, SECONDS or LEGACY", name)
}

// String returns the name that KairosDB stores.
func (u Unit) String() string {
	switch u {
	case Milliseconds:
		return "MILLISECONDS"
	case Seconds:
		return "SECONDS"
	case Legacy:
		return "LEGACY"
	}
	return "invalid"
}

// Spec is the row arithmetic of a store, fixed when the store is made. Its
// methods need a Spec that Validate accepts.
type Spec struct {
	// Width is the length of a row as KairosDB stores it: in seconds if Unit
	// is Seconds, else in milliseconds.
	Width int64
	Unit  Unit
}

// MaxWidth is the largest width: offsets from 2^31 on are read back wrong.
const MaxWidth int64 = 1 << 31

// Validate reports an invalid width or unit.
func (s Spec) Validate() error {
	var errs []error
	if s.Width < 1 || s.Width > MaxWidth {
		errs = append(errs, fmt.Errorf("row_width %d: want 1 to %d", s.Width, MaxWidth))
	}
	if s.Unit > Legacy {
		errs = append(errs, fmt.Errorf("row_time_unit %d is unknown", s.Unit))
	}
	return errors.Join(errs...)
}

// WidthMS is the length of a row in milliseconds, as KairosDB uses it for
// expiry, deletes and the upper bounds of reads. In a keyspace of seconds it
// is 1,000 times the width that RowTime uses.
func (s Spec) WidthMS() int64 {
	if s.Unit == Seconds {
		return s.Width * 1000
	}
	return s.Width
}

// RowTime returns the row time of a sample at ms. It takes Width for
// milliseconds whatever the unit, as KairosDB does: default rows of a keyspace
// of seconds are 30.24 minutes wide. Times below math.MinInt64 + Width wrap
// around, again as in KairosDB, and cannot be found by RowRange.
func (s Spec) RowTime(ms int64) int64 {
	abs := ms
	if abs < 0 {
		abs = -abs // math.MinInt64 stays negative, as Java's Math.abs
	}
	return ms - abs%s.Width
}

// RowRange returns the lowest and the highest row time of samples in r, which
// is not empty. Between them there may be rows of other samples.
//
// KairosDB itself searches from RowTime(start) to RowTime(end), and so misses
// samples at negative times: a row time is up to Width - 1 below its samples,
// and can be above the RowTime of a later sample.
func (s Spec) RowRange(r model.TimeRange) (lowestMS, highestMS int64) {
	lowestMS, highestMS = s.RowTime(r.StartMS), s.RowTime(r.EndMS)
	if r.StartMS < 0 {
		lowestMS = math.MinInt64
		if r.StartMS >= math.MinInt64+s.Width {
			lowestMS = r.StartMS - s.Width + 1
		}
	}
	if r.EndMS < 0 {
		highestMS = r.EndMS
	}
	return lowestMS, highestMS
}

// Column returns the column of a sample at ms in the row at rowTimeMS. Its four
// bytes are the number in big-endian order; Cassandra compares them unsigned.
// In a keyspace of seconds the milliseconds since the row time are cut off.
func (s Spec) Column(rowTimeMS, ms int64) uint32 {
	offset := ms - rowTimeMS
	switch s.Unit {
	case Seconds:
		return uint32(offset / 1000)
	case Legacy:
		return uint32(offset) << 1
	}
	return uint32(offset)
}

// Time returns the time of a column: the inverse of Column, for offsets below
// 2^31 units. KairosDB reads larger ones as negative, and so does Time.
func (s Spec) Time(rowTimeMS int64, column uint32) int64 {
	switch s.Unit {
	case Seconds:
		return rowTimeMS + int64(int32(column))*1000
	case Legacy:
		return rowTimeMS + int64(column>>1)
	}
	return rowTimeMS + int64(int32(column))
}

// LegacyColumn splits a column of a row of type TypeLegacy, in a Legacy
// keyspace: floating says that the value is a float or a double.
func (s Spec) LegacyColumn(rowTimeMS int64, column uint32) (ms int64, floating bool) {
	return s.Time(rowTimeMS, column), column&1 == 1
}

// ColumnBytes is a column as data_points has it: see ParseColumn.
func ColumnBytes(column uint32) []byte { return binary.BigEndian.AppendUint32(nil, column) }

// ParseColumn returns the column of four bytes.
func ParseColumn(b []byte) (uint32, error) {
	if len(b) != 4 {
		return 0, fmt.Errorf("column %x: %d bytes, want 4", b, len(b))
	}
	return binary.BigEndian.Uint32(b), nil
}

// Slice returns the columns of the row at rowTimeMS that may lie in r: from
// inclusive, toExcl exclusive. Both are 0 if there are none. They are
// KairosDB's bounds, so in a keyspace of seconds the slice begins up to 999 ms
// before r, and a legacy floating value at the last millisecond is left out.
func (s Spec) Slice(rowTimeMS int64, r model.TimeRange) (from, toExcl uint32) {
	width := s.WidthMS()
	if s.Unit != Seconds {
		width = min(width, MaxWidth-1) // one more would be shifted out of a legacy column
	}
	last := addSaturated(rowTimeMS, width)
	if r.StartMS > r.EndMS || r.EndMS < rowTimeMS || r.StartMS > last {
		return 0, 0
	}
	if r.StartMS > rowTimeMS {
		from = s.Column(rowTimeMS, r.StartMS)
	}
	return from, s.Column(rowTimeMS, min(r.EndMS, last)) + 1
}

// FirstShown returns the lowest time that samples of the row at rowTimeMS have in the answer to a
// query that begins at startMS. In a keyspace of seconds, KairosDB compares whole seconds since the
// row time, so that samples up to 999 ms before the start are in the answer. That applies to the
// rows that KairosDB reads: from RowTime(startMS) on. In other rows, and at the end of a range,
// times are exact.
func (s Spec) FirstShown(rowTimeMS, startMS int64) int64 {
	if s.Unit != Seconds || startMS <= rowTimeMS || rowTimeMS < s.RowTime(startMS) {
		return startMS
	}
	return s.Time(rowTimeMS, s.Column(rowTimeMS, startMS))
}

// Partition returns the start of the embedded store's partition that holds ms:
// the highest multiple of WidthMS that is not above ms, so that partitions tile
// the time line without gaps and overlaps on both sides of zero. RowTime is
// unsuitable: it gives each negative millisecond a row of its own. The lowest
// partition would start below the first time that can be represented; its start
// is math.MinInt64.
func (s Spec) Partition(ms int64) int64 {
	into := s.into(ms)
	if ms < math.MinInt64+into {
		return math.MinInt64
	}
	return ms - into
}

// PartitionEnd returns the last millisecond of the partition that starts at
// startMS (any time of a partition will do): at most math.MaxInt64.
func (s Spec) PartitionEnd(startMS int64) int64 {
	return addSaturated(startMS, s.WidthMS()-1-s.into(startMS))
}

// into returns the distance of ms from the start of its partition.
func (s Spec) into(ms int64) int64 { return ms - model.Floor(ms, s.WidthMS()) }

// addSaturated adds b, which is not negative, to a.
func addSaturated(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
