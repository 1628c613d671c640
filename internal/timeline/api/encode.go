package api

import (
	"strconv"

	"varve/internal/ingest/jsontext"
	"varve/internal/timeline"
)

// floorMS returns the millisecond that contains a time.
func floorMS(us int64) int64 {
	ms := us / usPerMS
	if us%usPerMS < 0 {
		ms--
	}
	return ms
}

// appendTime appends the members of a time. It adds microseconds only if the time is not a whole
// millisecond.
func appendTime(to []byte, us int64) []byte {
	to = append(to, `"time":`...)
	to = strconv.AppendInt(to, floorMS(us), 10)
	if us%usPerMS != 0 {
		to = append(to, `,"time_us":`...)
		to = strconv.AppendInt(to, us, 10)
	}
	return to
}

// appendEvent appends an event. from is the value of its member "timeline", "" for no such member.
func appendEvent(to []byte, from string, e *timeline.Event, missing bool) []byte {
	to = append(to, '{')
	if from != "" {
		to = append(to, `"timeline":`...)
		to = append(jsontext.AppendText(to, from), ',')
	}
	to = appendTime(to, e.Time)
	to = append(to, `,"id":`...)
	to = jsontext.AppendText(to, e.ID)
	to = append(to, `,"type":`...)
	to = append(jsontext.AppendText(to, e.Type), ',')
	if missing {
		return append(to, `"data":null,"missing":true}`...)
	}
	return append(appendPayload(to, e.Data), '}')
}

// appendPosition appends the position of an event, null if there is none.
func appendPosition(to []byte, p timeline.Position) []byte {
	if p.ID == "" {
		return append(to, "null"...)
	}
	to = appendTime(append(to, '{'), p.Time)
	to = append(to, `,"id":`...)
	return append(jsontext.AppendText(to, p.ID), '}')
}
