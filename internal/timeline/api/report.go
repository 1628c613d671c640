package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"

	"varve/internal/failure"
	"varve/internal/ingest"
	"varve/internal/store"
	"varve/internal/timeline"
)

// An answer lists at most this many ids and rejections. It says how many more there are.
const (
	idsKept      = 10_000
	rejectedKept = 1000
	reasonBytes  = 500 // of the reason of a rejection
)

// badMost is how many events of a body may be invalid. A small packed body can have hundreds of
// millions, which would be read for minutes, even after its sender has left.
const badMost = 100_000

// A report says what became of the events of a request.
type report struct {
	Accepted     int64      `json:"accepted"`
	Rejected     []rejected `json:"rejected"`
	IDs          []string   `json:"ids"`
	RejectedMore int64      `json:"rejected_more,omitempty"` // rejections beyond those in Rejected
	IDsMore      int64      `json:"ids_more,omitempty"`      // ids beyond those in IDs

	// Next is the number of the event from which to send again, if the request was not completed.
	// The events before it are stored, or rejected for good.
	Next   *int64   `json:"next,omitempty"`
	Errors []string `json:"errors,omitempty"`

	share *ingest.Share // of memory
	bytes int64         // of the strings above
	held  int64         // bytes reserved in share
	dealt int64         // events that were stored or rejected for good
	worst error         // an error of any event that is the server's fault
	stuck int64         // the first event with such an error; valid with worst
	fault error         // of the first rejected event
	bad   int64         // invalid events
}

// checkBad returns an error if a body has too many invalid events.
func (r *report) checkBad() error {
	if r.bad <= badMost {
		return nil
	}
	return &store.LimitError{Limit: "invalid events of a request", Max: badMost, Need: r.bad, What: "read the events from number \"next\" on"}
}

// A rejected is an event that is not stored, or not in one of its timelines.
type rejected struct {
	Index    int64  `json:"index"`
	Timeline string `json:"timeline,omitempty"`
	Error    string `json:"error"`
}

const (
	reportItem = 64       // memory of an entry of the slices, beside its strings
	freeReport = 16 << 10 // bytes up to which a report is not reserved
)

func newReport(share *ingest.Share) *report {
	return &report{Rejected: []rejected{}, IDs: []string{}, share: share}
}

// id adds the id of the next event.
func (r *report) id(ctx context.Context, id string) error {
	if len(r.IDs) >= idsKept {
		r.IDsMore++
		return nil
	}
	r.IDs = append(r.IDs, id)
	return r.keep(ctx, len(id))
}

func (r *report) reject(ctx context.Context, index int64, timeline string, err error) error {
	if r.fault == nil {
		r.fault = err
	}
	if failure.Of(err).Status >= http.StatusInternalServerError {
		if r.worst == nil {
			r.stuck = index
		}
		r.worst = err
	}
	if len(r.Rejected) >= rejectedKept {
		r.RejectedMore++
		return nil
	}
	text := messageOf(err)
	text = text[:min(len(text), reasonBytes)]
	r.Rejected = append(r.Rejected, rejected{index, timeline, text})
	return r.keep(ctx, len(text)+len(timeline))
}

// keep reserves memory for strings. Nothing is reserved for a small report, as for a small body.
func (r *report) keep(ctx context.Context, bytes int) error {
	r.bytes += int64(bytes) + reportItem
	if r.bytes <= max(r.held, freeReport) {
		return nil
	}
	r.held = 2 * r.bytes
	return r.share.Grow(ctx, r.held)
}

// write answers a request. err is why the request was not completed, nil if it was. The status is
// that of err, or of an error of any event that is the server's fault. Otherwise, it is that of the
// first rejected event if no event is stored and some were rejected, and else 200.
func (r *report) write(w http.ResponseWriter, req *http.Request, log *slog.Logger, err error) {
	if err = cmp.Or(err, r.worst); err != nil {
		r.Next = &r.dealt
	} else if r.Accepted == 0 {
		err = r.fault
	}
	if err == nil {
		r.form(w, http.StatusOK)
		return
	}
	failure.Answer(w, req, log, err, r.form)
}

// form answers with the report, and with texts that say what ended the request.
func (r *report) form(w http.ResponseWriter, status int, texts ...string) {
	r.Errors = texts
	body, fault := json.Marshal(r)
	if fault != nil {
		panic(fault) // strings and numbers always marshal
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// A block collects events in order to append them together.
type block struct {
	api    *API
	report *report
	name   string // of the timeline of all events; "": each names its own
	events []timeline.Addressed
	places int // events, each counted once per timeline
	bytes  int64
	index  int64           // of the next event of the body
	first  int64           // index of the first event of the block
	bad    map[int64]error // invalid events of the block, by index
}

// Bounds of a block. They are below those of Append, because a block is committed as a whole.
const (
	blockPlaces = 2000
	blockBytes  = 4 << 20
)

// add adds the next event of the body, or the error if it is invalid. If the block has no room for
// it, the block is appended first.
func (b *block) add(ctx context.Context, e timeline.Addressed, err error) error {
	if own := slices.IndexFunc(e.Timelines, b.api.engine.IsOwn); err == nil && own >= 0 {
		err = badf("timeline %s accepts no events here: the server stores its own events there", e.Timelines[own])
	}
	bytes := int64(len(e.Data)) * int64(len(e.Timelines))
	if b.isFull(len(e.Timelines), bytes) {
		if err := b.flush(ctx); err != nil {
			return err
		}
	}
	if err != nil {
		if b.bad == nil {
			b.bad = map[int64]error{}
		}
		b.bad[b.index] = err
		e = timeline.Addressed{Event: timeline.Event{ID: e.ID}}
	}
	b.events = append(b.events, e)
	b.index++
	b.places += len(e.Timelines)
	b.bytes += bytes
	return nil
}

// isFull reports whether the block must be appended before an event with so many timelines and
// bytes is added.
func (b *block) isFull(places int, bytes int64) bool {
	atOnce := b.api.config.AtOnce()
	switch {
	case len(b.bad) >= blockPlaces:
		return true
	case b.places == 0:
		return false
	}
	return b.places+places > blockPlaces || b.bytes+bytes > blockBytes || atOnce > 0 && len(b.events) >= atOnce
}

// flush appends the collected events. They share memory with the body, which may be overwritten
// afterwards.
func (b *block) flush(ctx context.Context) error {
	if len(b.events) == 0 {
		return nil
	}
	good := make([]timeline.Addressed, 0, len(b.events))
	from := make([]int64, 0, len(b.events))
	for i, e := range b.events {
		if b.bad[b.first+int64(i)] == nil {
			good, from = append(good, e), append(from, b.first+int64(i))
		}
	}
	result, err := b.append(ctx, good)
	if err := b.tell(ctx, from, result); err != nil {
		return err
	}
	b.first = b.index
	b.report.bad += int64(len(b.bad))
	if err == nil {
		b.report.dealt = b.index
		if b.report.worst != nil {
			b.report.dealt = b.report.stuck
		}
		err = cmp.Or(b.report.worst, b.report.checkBad())
	}
	clear(b.events) // they hold data
	b.events, b.places, b.bytes, b.bad = b.events[:0], 0, 0, nil
	return err
}

// append appends the valid events of a block. If a limit forbids a single event as a whole, that
// event is rejected, and the request continues.
func (b *block) append(ctx context.Context, good []timeline.Addressed) (timeline.Result, error) {
	if len(good) == 0 {
		return timeline.Result{}, nil
	}
	result, err := b.api.put(ctx, good)
	if _, ok := errors.AsType[*store.LimitError](err); ok && len(good) == 1 {
		return timeline.Result{IDs: []string{good[0].ID}, Rejected: []timeline.Rejection{{Err: err}}}, nil
	}
	return result, err
}

// tell adds what became of the events of a block to the report.
func (b *block) tell(ctx context.Context, from []int64, result timeline.Result) error {
	r := b.report
	r.Accepted += int64(result.Accepted)
	next, rejections := 0, result.Rejected
	for i := b.first; i < b.index; i++ {
		id := b.events[i-b.first].ID
		if err := b.bad[i]; err != nil {
			if err := r.reject(ctx, i, "", err); err != nil {
				return err
			}
		} else {
			if next < len(result.IDs) {
				id = result.IDs[next]
			}
			for ; len(rejections) > 0 && rejections[0].Index == next; rejections = rejections[1:] {
				which := rejections[0].Timeline
				if b.name != "" {
					which = ""
				}
				if err := r.reject(ctx, from[next], which, rejections[0].Err); err != nil {
					return err
				}
			}
			next++
		}
		if err := r.id(ctx, id); err != nil {
			return err
		}
	}
	return nil
}
