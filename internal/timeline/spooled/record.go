package spooled

import (
	"encoding/binary"
	"errors"
	"time"

	"varve/internal/timeline"
	"varve/internal/wal"
	"varve/internal/writelog"
)

// Types of the records, version 1. They are on disk and never reused.
const (
	typeEvents  = 1
	typeSetBack = 2 // a timeline.SetBack: the clock was set back after the events of the previous records were accepted
)

// recordBytes is about the size of a record, unless a single event is larger.
const recordBytes = 1 << 20

// A record has events that were accepted together:
//
//	at, microseconds: varint | per event: time varint | id | type | data |
//	                                      number of timelines uvarint | their names
//
// Each text is its length as uvarint, and its bytes.
func appendAt(dst []byte, at time.Time) []byte { return binary.AppendVarint(dst, at.UnixMicro()) }

func appendEvent(dst []byte, e *timeline.Addressed) []byte {
	dst = binary.AppendVarint(dst, e.Time)
	dst = timeline.AppendText(timeline.AppendText(timeline.AppendText(dst, e.ID), e.Type), e.Data)
	dst = binary.AppendUvarint(dst, uint64(len(e.Timelines)))
	for _, name := range e.Timelines {
		dst = timeline.AppendText(dst, name)
	}
	return dst
}

// An encoded is a record to be written.
type encoded struct {
	bytes  []byte
	events int
	at     time.Time // when they were accepted
}

// encode returns records of events. size is their size in the log.
func encode(events []timeline.Accepted) (records []encoded, size int) {
	r := encoded{}
	for i := range events {
		e := &events[i]
		if r.events == 0 {
			r.at, r.bytes = e.At, appendAt(nil, e.At)
		}
		r.bytes, r.events = appendEvent(r.bytes, &e.Addressed), r.events+1
		if len(r.bytes) >= recordBytes || i == len(events)-1 || !events[i+1].At.Equal(r.at) {
			records, size, r = append(records, r), size+len(r.bytes)+wal.RecordOverhead, encoded{}
		}
	}
	return records, size
}

var errRecord = errors.New("the record is not one of events: use a newer build")

// decodeAs reads a record of a type, which has events or says how the clock was set back. The events
// do not share memory with it.
func decodeAs(typ byte, record []byte) (events []timeline.Accepted, back timeline.SetBack, err error) {
	switch typ {
	case typeEvents:
		events, err = decode(record)
	case typeSetBack:
		back, err = timeline.ParseSetBack(record)
	default:
		err = writelog.UnknownType(typ)
	}
	return events, back, err
}

func decode(record []byte) (events []timeline.Accepted, err error) {
	c := timeline.Cutter{Rest: record}
	at := time.UnixMicro(c.Varint())
	for len(c.Rest) > 0 && !c.Bad {
		e := timeline.Addressed{Event: timeline.Event{Time: c.Varint(), ID: string(c.Text()), Type: string(c.Text()), Data: append([]byte{}, c.Text()...)}}
		for n := c.Uvarint(); n > 0 && !c.Bad; n-- {
			e.Timelines = append(e.Timelines, string(c.Text()))
		}
		events = append(events, timeline.Accepted{Addressed: e, At: at})
	}
	if c.Bad {
		return nil, errRecord
	}
	return events, nil
}
