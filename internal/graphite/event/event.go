// Package event stores Graphite's events (a deployment, an alarm) in a timeline, and finds
// them by time and tags.
//
//	time (µs)               id                  data
//	second * 10^6 + number  of the timeline's   {"what":"...","data":"...","tags":["deploy"]}
//
// Number counts the events of a second, in the order in which they were added. Second and
// number form the id of the event in Graphite's API.
//
// The names of all tags are key-values of the store:
//
//	service   service key   key      text
//	_Events   tags          deploy
//
// They exist because searches ignore tags that no event has ever had. A tag is stored
// before the first event that has it.
package event

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"varve/internal/clip"
	"varve/internal/store"
	"varve/internal/timeline"
)

// An Event is something that happened.
type Event struct {
	ID   int64 // of a stored event
	When int64 // seconds since 1970
	What string
	Data string
	Tags []string
}

// MaxTagBytes limits the tags of an event, and those of a search, joined by spaces.
const MaxTagBytes = 1000

// endExcl limits the times of events, in seconds. Times in milliseconds exceed it, and ids
// have room for smaller times.
const endExcl = 10_000_000_000

// Parse parses the body of a request that adds an event: a JSON object with what, and
// optionally tags (a list, or a string with spaces), when (default: now) and data. Other
// members are ignored, as in graphite-web, even if only the case of their names differs.
// Errors are *store.InputErrors.
func Parse(text []byte, now time.Time) (Event, error) {
	e := Event{When: now.Unix()}
	if !utf8.Valid(text) {
		return e, badf("the event is not UTF-8")
	}
	var members map[string]json.RawMessage // a struct's fields would ignore the case of names
	if err := json.Unmarshal(text, &members); err != nil {
		return e, badf("an event is an object of JSON such as {\"what\": \"deployed\", \"tags\": [\"web\"]}: %v", err)
	}
	if what := members["what"]; what == nil || string(what) == "null" {
		return e, badf("the event does not say what happened: the member \"what\" is missing")
	}
	e.What, e.Data = textOf(members["what"]), textOf(members["data"])
	var err error
	if when := members["when"]; when != nil && string(when) != "null" {
		if e.When, err = seconds(when); err != nil {
			return e, err
		}
	}
	e.Tags, err = parseTags(members["tags"])
	return e, err
}

// textOf returns the value of a JSON string, "" for null, and the JSON text of any other value.
func textOf(raw json.RawMessage) (text string) {
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	return text
}

func badf(format string, args ...any) error {
	return &store.InputError{Reason: fmt.Sprintf(format, args...)}
}

func seconds(raw json.RawMessage) (int64, error) {
	var n json.Number
	if err := json.Unmarshal(raw, &n); err == nil {
		if v, err := n.Float64(); err == nil && v >= 0 && v < endExcl {
			return int64(math.Floor(v)), nil
		}
	}
	return 0, badf("\"when\" is %s, but must be seconds since 1970, from 0 to %d (not milliseconds)", clip.Text(string(raw), 40), int64(endExcl-1))
}

// parseTags parses tags. It splits each text at white space, since graphite-web stores all
// tags of an event in one text.
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
		return badf("the tags have %d bytes, but an event may have at most %d", n, MaxTagBytes)
	}
	return nil
}

// numberBits is the size of the number in an id. Together with the second, an id has at
// most 53 bits, which every JSON parser preserves.
const numberBits = 19

// second is a second in the times of timelines, which are microseconds.
const second = 1_000_000

// timeOf returns the time in the timeline of the event with an id.
func timeOf(id int64) int64 { return id>>numberBits*second + id&(1<<numberBits-1) }

// idOf is the inverse of timeOf.
func idOf(time int64) int64 { return time/second<<numberBits | time%second }

// ParseID parses an id in a path.
func ParseID(text string) (int64, error) { return strconv.ParseInt(strings.TrimSpace(text), 10, 64) }

// A stored is the data of an event in the timeline.
type stored struct {
	What string   `json:"what"`
	Data string   `json:"data"`
	Tags []string `json:"tags,omitempty"`
}

func (e *Event) stored() ([]byte, error) { return json.Marshal(stored{e.What, e.Data, e.Tags}) }

// parseStored parses an event of the timeline.
func parseStored(found *timeline.Event) (Event, error) {
	var s stored
	if err := json.Unmarshal(found.Data, &s); err != nil || found.Time < 0 || found.Time%second >= 1<<numberBits {
		return Event{}, &store.CorruptionError{File: "timeline " + Timeline, Reason: fmt.Sprintf("the event %q at %d is not an event of Graphite: %v", found.ID, found.Time, err)}
	}
	return Event{idOf(found.Time), found.Time / second, s.What, s.Data, s.Tags}, nil
}
