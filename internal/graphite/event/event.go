// Package event keeps Graphite's events (a deployment, an alarm) in the key-values of
// any store, where they are found by time and tags.
//
//	service   service key   key                                 text
//	_Events   days          2024-03-10
//	_Events   tags          deploy
//	_Events   2024-03-10    1710071700.000001.9f86d081 deploy web   {"what":"...","data":"..."}
//
// The key of an event is its second, its number within that second, a mark of the
// process that wrote it, and its tags. So the keys of a day are in the order of time,
// say all that a search looks at, and those of several processes never meet. A day
// is entered before its first event, a tag before the first event that has it.
//
// A table of its own would save little: a search reads the list of days, then the keys
// of the days in its range, and texts only of what it found. KairosDB's service_index
// has these three ways of access, too, so that events are kept over Cassandra in the
// same manner, with a partition a day.
package event

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"varve/internal/clip"
	"varve/internal/store"
)

// An Event is something that happened.
type Event struct {
	ID   int64 // once it is kept
	When int64 // seconds since 1970
	What string
	Data string
	Tags []string
}

// MaxTagBytes bounds the tags of an event, and those of a search, with a space between
// two. They are part of the key of an event.
const MaxTagBytes = 1000

// endExcl is the first second that has more than the ten digits of a key.
const endExcl = 10_000_000_000

// Parse reads an event as it is posted: an object with what, and maybe tags (a list, or
// a text with spaces), when (now if absent) and data. Other members are ignored, as
// graphite-web does. Errors are *store.InputErrors.
func Parse(text []byte, now time.Time) (Event, error) {
	var posted struct {
		What *string         `json:"what"`
		Tags json.RawMessage `json:"tags"`
		When *json.Number    `json:"when"`
		Data json.RawMessage `json:"data"`
	}
	e := Event{When: now.Unix()}
	if err := json.Unmarshal(text, &posted); err != nil {
		return e, badf("an event is an object of JSON such as {\"what\": \"deployed\", \"tags\": [\"web\"]}: %v", err)
	}
	if posted.What == nil {
		return e, badf("the event does not say what happened: the member \"what\" is missing")
	}
	e.What = *posted.What
	var err error
	if posted.When != nil {
		if e.When, err = seconds(*posted.When); err != nil {
			return e, err
		}
	}
	if e.Tags, err = parseTags(posted.Tags); err != nil {
		return e, err
	}
	if json.Unmarshal(posted.Data, &e.Data) != nil { // no text: kept as it was written
		e.Data = string(posted.Data)
	}
	return e, nil
}

func badf(format string, args ...any) error {
	return &store.InputError{Reason: fmt.Sprintf(format, args...)}
}

func seconds(n json.Number) (int64, error) {
	v, err := n.Float64()
	if err != nil || !(v >= 0 && v < endExcl) {
		return 0, badf("\"when\" is %s, but must be seconds since 1970, from 0 to %d (not milliseconds)", clip.Text(n.String(), 40), int64(endExcl-1))
	}
	return int64(math.Floor(v)), nil
}

// parseTags splits texts at white space, since graphite-web keeps all tags in one text.
func parseTags(raw json.RawMessage) ([]string, error) {
	var text string
	var list []string
	switch {
	case raw == nil || string(raw) == "null":
		return nil, nil
	case json.Unmarshal(raw, &text) == nil:
	case json.Unmarshal(raw, &list) == nil:
		text = strings.Join(list, " ")
	default:
		return nil, badf("\"tags\" must be a list of texts, or a text with spaces between tags")
	}
	tags := strings.Fields(text)
	return tags, checkTags(tags)
}

func checkTags(tags []string) error {
	if n := len(strings.Join(tags, " ")); n > MaxTagBytes {
		return badf("the tags have %d bytes, but those of an event have %d at most", n, MaxTagBytes)
	}
	return nil
}

// A key names an event, and has all but its text.
type key struct {
	when   int64
	number int    // within the second
	writer string // of the process, 8 hexadecimal digits
	tags   []string
}

// numberBits bounds the events of one second. Together with the second, an id has at
// most 53 bits, which every reader of JSON keeps.
const numberBits = 19

// secondPrefix is what the keys of a second begin with.
func secondPrefix(when int64) string { return fmt.Sprintf("%010d.", when) }

func (k key) String() string {
	return strings.TrimRight(fmt.Sprintf("%s%06d.%s %s", secondPrefix(k.when), k.number, k.writer, strings.Join(k.tags, " ")), " ")
}

func (k key) id() int64 { return k.when<<numberBits | int64(k.number) }

// parseKey reads what String wrote.
func parseKey(text string) (k key, err error) {
	fields := strings.Split(text, " ")
	parts := strings.Split(fields[0], ".")
	bad := &store.CorruptionError{File: "key-values of " + service, Reason: fmt.Sprintf("%.100q is no key of an event", text)}
	if len(parts) != 3 || len(parts[0]) != 10 || len(parts[1]) != 6 {
		return k, bad
	}
	k.when, err = strconv.ParseInt(parts[0], 10, 64)
	if err != nil {
		return k, bad
	}
	if k.number, err = strconv.Atoi(parts[1]); err != nil {
		return k, bad
	}
	k.writer, k.tags = parts[2], fields[1:]
	return k, nil
}

// dayOf is the service key of the day of a time.
func dayOf(when int64) string { return time.Unix(when, 0).UTC().Format(time.DateOnly) }

const secondsPerDay = 24 * 60 * 60
