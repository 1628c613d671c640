package events

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"varve/internal/store"
	"varve/internal/timeline"
)

// A cursor records how far the logs of a timeline were read.
//
//	0      1                 9
//	+------+-----------------+------------------------------------------+
//	| 0x01 | made, us        | per log, ascending by its number:        |
//	| u8   | i64 big-endian  | log i32 big-endian, number - made varint,|
//	|      |                 | skip uvarint                             |
//	+------+-----------------+------------------------------------------+
//
// A log that is not in the cursor had no rows when the cursor was made.
type cursor struct {
	made int64 // microseconds
	logs []place
}

// A place is a position in a log: all rows before number were read, and skip entries of that
// row.
type place struct {
	log    int32
	number int64
	skip   int
}

// logsMax is how many servers may write to a followed timeline within logKept. This many logs
// fit into timeline.ArrivalBytesMax.
const logsMax = 36

const cursorVersion = 1

const (
	// cursorSkew is how far the clocks of servers may differ for cursors and logs to work.
	cursorSkew = time.Minute

	// cursorAhead is how far the numbers of a cursor may be ahead of the time when it was made.
	cursorAhead = 2 * time.Minute
)

func (c *cursor) encode() []byte {
	b := binary.BigEndian.AppendUint64([]byte{cursorVersion}, uint64(c.made))
	for _, p := range c.logs {
		b = binary.BigEndian.AppendUint32(b, uint32(p.log))
		b = binary.AppendVarint(b, p.number-c.made)
		b = binary.AppendUvarint(b, uint64(p.skip))
	}
	return b
}

var errCursor = &store.InputError{Reason: "the cursor was not issued by this server"}

// parseCursor decodes a cursor. The bytes come from a client, so they need not be those of
// encode.
func parseCursor(b []byte, now time.Time) (*cursor, error) {
	if len(b) < 9 || len(b) > timeline.ArrivalBytesMax || b[0] != cursorVersion {
		return nil, errCursor
	}
	c := &cursor{made: int64(binary.BigEndian.Uint64(b[1:]))}
	if c.made < 0 {
		return nil, errCursor
	}
	if ahead := micros(c.made - now.UnixMicro()); ahead > cursorSkew {
		return nil, &store.InputError{Reason: fmt.Sprintf("the cursor is of a time %v ahead of this server's clock, at most %v is accepted: "+
			"synchronise the clocks of the servers, or begin without a cursor", ahead.Round(time.Second), cursorSkew)}
	}
	for b = b[9:]; len(b) > 0; {
		if len(b) < 4 || len(c.logs) == logsMax {
			return nil, errCursor
		}
		p, rest := place{log: int32(binary.BigEndian.Uint32(b))}, timeline.Cutter{Rest: b[4:]}
		before, skip := rest.Varint(), rest.Uvarint()
		if b = rest.Rest; rest.Bad || skip > rowArrivals || before < -2*logKept.Microseconds() {
			return nil, errCursor
		}
		if ahead := micros(before); ahead > cursorAhead {
			return nil, &store.InputError{Reason: "the cursor cannot be continued: " + aheadText(ahead) + ", then begin without a cursor"}
		}
		p.number, p.skip = c.made+before, int(skip)
		if n := len(c.logs); n > 0 && c.logs[n-1].log >= p.log {
			return nil, errCursor
		}
		c.logs = append(c.logs, p)
	}
	return c, nil
}

// aheadText says that the numbers of a log are ahead of this server's clock, and what to do.
func aheadText(ahead time.Duration) string {
	return fmt.Sprintf("the clock of a server that writes to the timeline is %v ahead of this server's, at most %v is accepted: synchronise the clocks, and restart the server whose clock was ahead",
		ahead.Round(time.Second), cursorAhead)
}

// micros converts microseconds to a duration, at most the longest one.
func micros(n int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(min(n, most)) * time.Microsecond
}

// of returns how far a log was read. A log that is not in the cursor began after the cursor was
// made, but the clock of its server may be behind.
func (c *cursor) of(log int32) place {
	i, found := slices.BinarySearchFunc(c.logs, log, func(p place, log int32) int { return cmp.Compare(p.log, log) })
	if !found {
		return place{log: log, number: c.made - cursorSkew.Microseconds()}
	}
	return c.logs[i]
}
