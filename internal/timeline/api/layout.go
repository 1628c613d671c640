package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"varve/internal/clip"
	"varve/internal/store"
	"varve/internal/suggest"
	"varve/internal/timeline"
)

// A shownLayout is a layout in an answer. Times are in milliseconds.
type shownLayout struct {
	From       *int64             `json:"from"` // null: from the beginning
	Size       int64              `json:"size"`
	Partitions int                `json:"partitions"`
	Mode       timeline.Mode      `json:"mode"`
	Threshold  int                `json:"threshold,omitempty"`
	Placement  timeline.Placement `json:"placement"`
}

func shownLayoutOf(l timeline.Layout) shownLayout {
	s := shownLayout{Size: l.Size / usPerMS, Partitions: l.Factor, Mode: l.Mode, Threshold: l.Threshold, Placement: l.Placement}
	if l.From != timeline.Beginning {
		from := floorMS(l.From)
		s.From = &from
	}
	return s
}

// A shownHistory is all layouts of a timeline.
type shownHistory struct {
	Version   uint64        `json:"version"`
	Retention int64         `json:"retention"` // ms; 0: for ever
	Layouts   []shownLayout `json:"layouts"`
}

func historyJSON(h timeline.History) ([]byte, error) {
	s := shownHistory{Version: h.Version, Retention: h.Retention.Milliseconds(), Layouts: []shownLayout{}}
	for _, l := range h.Layouts {
		s.Layouts = append(s.Layouts, shownLayoutOf(l))
	}
	return json.Marshal(s)
}

// layout answers GET /api/v1/timelines/NAME/layout.
func (a *API) layout(w http.ResponseWriter, r *http.Request) error {
	return a.about(w, r, func(ctx context.Context, name string) ([]byte, error) {
		h, err := a.engine.Layout(ctx, name)
		if err != nil {
			return nil, err
		}
		return historyJSON(h)
	})
}

// changeBytesMax bounds the body of a request that changes a timeline.
const changeBytesMax = 4 << 10

// parseChange reads the body of a request that changes a timeline, an object, and calls take for
// each member. Unknown and repeated members are errors.
func parseChange(w http.ResponseWriter, r *http.Request, known []string, take func(name string, value []byte) error) error {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, changeBytesMax))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &store.LimitError{Limit: "bytes of a change of a timeline", Max: changeBytesMax, Need: max(r.ContentLength, changeBytesMax+1), What: "read the request"}
	}
	if err != nil {
		return badf("read the request: %v", err)
	}
	if err := checkJSON(text); err != nil {
		return err
	}
	if text = text[space(text, 0):]; text[0] != '{' {
		return badf("the body must be an object with some of these members: %s", strings.Join(known, ", "))
	}
	var seen []string
	return members(text, func(name string, value []byte, _ int) error {
		if !slices.Contains(known, name) {
			return badf("the member %s is not known%s; these are: %s", strconv.Quote(clip.Text(name, clipped)), suggest.Hint(name, known), strings.Join(known, ", "))
		}
		if slices.Contains(seen, name) {
			return badf("the member %q is given twice", name)
		}
		seen = append(seen, name)
		return take(name, value)
	})
}

// propose answers POST /api/v1/timelines/NAME/layout.
func (a *API) propose(w http.ResponseWriter, r *http.Request) error {
	var p timeline.Proposal
	return a.change(w, r, []string{"version", "from", "size", "partitions", "mode", "threshold", "placement"}, func(name string, value []byte) (err error) {
		switch name {
		case "mode":
			p.Mode, err = parseWord(name, value, timeline.Materialised, timeline.Index, timeline.Hybrid)
			return err
		case "placement":
			p.Placement, err = parseWord(name, value, timeline.Hash, timeline.RoundRobin)
			return err
		}
		most := int64(timeline.MaxTime / usPerMS)
		if name == "partitions" || name == "threshold" {
			most = 1<<31 - 1
		}
		n, ok := wholeNumber(value)
		if !ok || n < 1 || n > most {
			return badf("%q is %s, but must be a whole number from 1 to %d", name, clip.Text(value, clipped), most)
		}
		switch name {
		case "version":
			p.Version = uint64(n)
		case "from":
			p.From = n * usPerMS
		case "size":
			p.Size = n * usPerMS
		case "partitions":
			p.Factor = int(n)
		case "threshold":
			p.Threshold = int(n)
		}
		return nil
	}, func(name string) (timeline.History, error) { return a.engine.Propose(r.Context(), name, p) })
}

// parseWord reads a string that must be one of words.
func parseWord[W ~string](name string, value []byte, words ...W) (W, error) {
	text, err := parseText(name, value)
	if err == nil && !slices.Contains(words, W(text)) {
		err = badf("%q is %s, but must be one of %q", name, strconv.Quote(clip.Text(text, clipped)), words)
	}
	return W(text), err
}

// setRetention answers POST /api/v1/timelines/NAME/retention.
func (a *API) setRetention(w http.ResponseWriter, r *http.Request) error {
	retention := time.Duration(-1)
	return a.change(w, r, []string{"retention"}, func(name string, value []byte) error {
		const most = int64(1<<63-1) / int64(time.Millisecond)
		n, ok := wholeNumber(value)
		if !ok || n < 0 || n > most {
			return badf("%q is %s, but must be a whole number of milliseconds from 0, for ever, to %d", name, clip.Text(value, clipped), most)
		}
		retention = time.Duration(n) * time.Millisecond
		return nil
	}, func(name string) (timeline.History, error) {
		if retention < 0 {
			return timeline.History{}, badf("the body has no \"retention\"")
		}
		return a.engine.SetRetention(r.Context(), name, retention)
	})
}

// change reads a change of a timeline with take, makes it with do, and answers with the history.
func (a *API) change(w http.ResponseWriter, r *http.Request, known []string, take func(name string, value []byte) error, do func(name string) (timeline.History, error)) error {
	name, err := nameOf(r)
	if err != nil {
		return err
	}
	if err := parseChange(w, r, known, take); err != nil {
		return err
	}
	h, err := do(name)
	if err != nil {
		return notThere(err, name)
	}
	body, err := historyJSON(h)
	if err != nil {
		return err
	}
	return writeBody(w, body)
}
