package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"varve/internal/clip"
	"varve/internal/store"
	"varve/internal/suggest"
	"varve/internal/timeline"
)

// maxDepth bounds how deeply objects and arrays are nested in an event's data: many JSON parsers
// fail beyond some hundreds.
const maxDepth = 100

// clipped is how many bytes of a client's text a message quotes.
const clipped = 60

func badf(format string, args ...any) error {
	return &store.InputError{Reason: fmt.Sprintf(format, args...)}
}

// checkJSON returns an error if a text is not valid JSON in UTF-8.
func checkJSON(text []byte) error {
	if !json.Valid(text) {
		var ignored json.RawMessage
		return badf("this is not valid JSON: %v", json.Unmarshal(text, &ignored))
	}
	if !utf8.Valid(text) {
		return badf("the text is not UTF-8; send bytes as \"data_base64\"")
	}
	return nil
}

var eventMembers = []string{"time", "time_us", "id", "type", "data", "data_base64", "timelines"}

// parseEvent reads an event from valid JSON. The event's data shares memory with text, which
// parseEvent may change. name is the timeline in the path, "" if the event must name its
// timelines. Even with an error, the event has the id that it was sent with, if that was read.
func parseEvent(text []byte, name string) (timeline.Addressed, error) {
	p := eventParser{named: name != ""}
	if p.named {
		p.event.Timelines = []string{name}
	}
	if text[0] != '{' {
		return p.event, badf("an event is an object such as {\"time\": 1700000000000, \"data\": {}}, not %s", clip.Text(text, clipped))
	}
	if err := members(text, p.member); err != nil {
		return p.event, err
	}
	switch {
	case !p.timed:
		return p.event, badf("the event has no \"time\", in milliseconds since 1970, or \"time_us\", in microseconds")
	case p.event.Data == nil:
		return p.event, badf("the event has no \"data\", which is any JSON, or \"data_base64\"")
	case p.event.Timelines == nil:
		return p.event, badf("the event has no \"timelines\", a list of names")
	}
	return p.event, nil
}

type eventParser struct {
	event timeline.Addressed
	named bool // the path names the timeline
	timed bool
	seen  [8]bool // by index in eventMembers
}

func (p *eventParser) member(name string, value []byte, depth int) (err error) {
	i := 0
	for i < len(eventMembers) && eventMembers[i] != name {
		i++
	}
	if i == len(eventMembers) || name == "timelines" && p.named {
		return p.unknown(name)
	}
	if p.seen[i] {
		return badf("the event has %q twice", name)
	}
	p.seen[i] = true
	switch name {
	case "time", "time_us":
		return p.time(name, value)
	case "id":
		p.event.ID, err = parseText(name, value)
		if err == nil && p.event.ID == "" {
			err = badf("\"id\" is empty; leave it out to get one")
		}
	case "type":
		p.event.Type, err = parseText(name, value)
	case "timelines":
		p.event.Timelines, err = parseTexts(name, value)
	default:
		return p.data(name, value, depth)
	}
	return err
}

func (p *eventParser) unknown(name string) error {
	if name == "timelines" {
		return badf("the path names the timeline; send events with \"timelines\" to %s/events", root)
	}
	return badf("an event has no member %s%s; these are known: %s", strconv.Quote(clip.Text(name, clipped)), suggest.Hint(name, eventMembers), strings.Join(eventMembers, ", "))
}

func (p *eventParser) time(name string, value []byte) error {
	if p.timed {
		return badf("the event has \"time\" and \"time_us\"; send one of them")
	}
	unit := int64(1)
	if name == "time" {
		unit = usPerMS
	}
	n, ok := wholeNumber(value)
	if !ok || n < timeline.MinTime/unit || n > timeline.MaxTime/unit {
		return badf("%q is %s, but must be a whole number of %s since 1970, of the years 1 to 9999", name, clip.Text(value, clipped), unitName(unit))
	}
	p.event.Time, p.timed = n*unit, true
	return nil
}

func (p *eventParser) data(name string, value []byte, depth int) error {
	if p.event.Data != nil {
		return badf("the event has \"data\" and \"data_base64\"; send one of them")
	}
	if depth > maxDepth {
		return &store.LimitError{Limit: "levels of the data of an event", Max: maxDepth, Need: int64(depth), What: "add an event"}
	}
	if name == "data" {
		p.event.Data = jsonPayload(value)
		return nil
	}
	text, err := parseText(name, value)
	if err == nil {
		p.event.Data, err = bytesPayload(text)
	}
	return err
}

const usPerMS = 1000

func unitName(unit int64) string {
	if unit == usPerMS {
		return "milliseconds"
	}
	return "microseconds"
}

// wholeNumber reads a whole number, also one written like 1.7e12.
func wholeNumber(text []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err == nil {
		return n, true
	}
	const exact = 1 << 53
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > exact || text[0] == '"' {
		return 0, false
	}
	return int64(f), true
}

func parseText(name string, value []byte) (string, error) {
	if value[0] != '"' {
		return "", badf("%q is %s, but must be a text", name, clip.Text(value, clipped))
	}
	text := unquote(value)
	if strings.Count(text, "\ufffd") > written(value) {
		return "", badf("%q is %s, which has half a character (an unpaired surrogate)", name, clip.Text(value, clipped))
	}
	return text, nil
}

// written counts how often U+FFFD was really written in a quoted string. Any more of them in the
// decoded string replace unpaired surrogates. Those are refused, since strings that differ only
// in them would become equal.
func written(quoted []byte) int {
	n := bytes.Count(quoted, []byte("\ufffd"))
	for i := 0; i < len(quoted)-5; i++ {
		if quoted[i] != '\\' {
			continue
		}
		if i++; quoted[i] == 'u' && strings.EqualFold(string(quoted[i+1:i+5]), "fffd") {
			n++
		}
	}
	return n
}

// parseTexts reads a list of strings. More than an event may have timelines are an error.
func parseTexts(name string, value []byte) ([]string, error) {
	if value[0] != '[' {
		return nil, badf("%q is %s, but must be a list of texts", name, clip.Text(value, clipped))
	}
	texts := []string{}
	for i := 1; ; {
		raw, end, ok := element(value, i)
		if !ok {
			return texts, nil
		}
		if len(texts) == timeline.FanoutMax {
			return nil, &store.LimitError{Limit: "timelines of an event", Max: timeline.FanoutMax, Need: timeline.FanoutMax + 1, What: "add an event"}
		}
		text, err := parseText(name, raw)
		if err != nil {
			return nil, err
		}
		texts, i = append(texts, text), end
	}
}
