package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"varve/internal/failure"
	"varve/internal/httpapi"
	"varve/internal/ingest/jsontext"
	"varve/internal/query"
	"varve/internal/timeline"
)

// readNamed answers GET /api/v1/timelines/NAME/events.
func (a *API) readNamed(w http.ResponseWriter, r *http.Request) error { return a.read(w, r, false) }

// readMerged answers GET /api/v1/timelines/events.
func (a *API) readMerged(w http.ResponseWriter, r *http.Request) error { return a.read(w, r, true) }

func (a *API) read(w http.ResponseWriter, r *http.Request, merged bool) error {
	p, err := parametersOf(r, "timeline")
	if err != nil {
		return err
	}
	q, err := p.query()
	if err != nil {
		return err
	}
	if merged {
		q.Timelines, err = p.timelines()
	} else {
		q.Timelines = make([]string, 1)
		q.Timelines[0], err = nameOf(r)
	}
	if err != nil {
		return err
	}
	return a.within(r, func(s *query.Session) error {
		q.Step = stepOf(s)
		page, err := a.engine.Read(s.Context(), q)
		if err != nil {
			return err
		}
		if err := q.Step(pageBytes(page)); err != nil {
			return err
		}
		return writePage(httpapi.WithBody(w, s.Writer(w)), page, merged)
	})
}

// stepOf returns the Query.Step of a session: it reserves the memory of the page as the page grows,
// and yields its slot to queries that wait.
func stepOf(s *query.Session) func(bytes int64) error {
	reserved := int64(0)
	return func(bytes int64) error {
		if bytes > reserved {
			if err := s.Reserve(bytes - reserved); err != nil {
				return err
			}
			reserved = bytes
		}
		return s.Yield()
	}
}

// pageBytes returns about how much memory a page takes.
func pageBytes(p timeline.Page) (n int64) {
	const each = 128
	for i := range p.Events {
		e := &p.Events[i]
		n += each + int64(len(e.ID)+len(e.Type)+len(e.Data))
	}
	return n + pieceBytes
}

// pieceBytes is about how many bytes of an answer are written at once.
const pieceBytes = 64 << 10

// writePage answers with a page.
func writePage(w http.ResponseWriter, p timeline.Page, merged bool) error {
	begin(w)
	buf := append(make([]byte, 0, 4<<10), `{"events":[`...)
	for i := range p.Events {
		e := &p.Events[i]
		if i > 0 {
			buf = append(buf, ',')
		}
		from := ""
		if merged {
			from = e.Timeline
		}
		buf = appendEvent(buf, from, &e.Event, e.Missing)
		e.Data = nil
		if len(buf) < pieceBytes {
			continue
		}
		if _, err := w.Write(buf); err != nil {
			return failure.Sent(err)
		}
		buf = buf[:0]
	}
	buf = append(buf, ']')
	if p.Cursor != "" {
		buf = append(buf, `,"cursor":`...)
		buf = jsontext.AppendText(buf, p.Cursor)
	}
	buf = append(buf, `,"end":`...)
	buf = strconv.AppendBool(buf, p.End)
	_, err := w.Write(append(buf, '}'))
	return failure.Sent(err)
}

// begin sets the headers of an answer in JSON.
func begin(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-cache")
}

func writeBody(w http.ResponseWriter, body []byte) error {
	begin(w)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, err := w.Write(body)
	return failure.Sent(err)
}

// sendBody answers with a body that was made for a query.
func sendBody(w http.ResponseWriter, s *query.Session, body []byte) error {
	if err := s.Reserve(int64(len(body))); err != nil {
		return err
	}
	return s.Aside(func() error { return writeBody(w, body) })
}

// about answers with what ask returns for the timeline in the path.
func (a *API) about(w http.ResponseWriter, r *http.Request, ask func(ctx context.Context, name string) ([]byte, error)) error {
	name, err := nameOf(r)
	if err != nil {
		return err
	}
	return a.within(r, func(s *query.Session) error {
		body, err := ask(s.Context(), name)
		if err != nil {
			return notThere(err, name)
		}
		return sendBody(w, s, body)
	})
}

// latest answers GET /api/v1/timelines/NAME/latest.
func (a *API) latest(w http.ResponseWriter, r *http.Request) error {
	return a.about(w, r, func(ctx context.Context, name string) ([]byte, error) {
		e, err := a.engine.Latest(ctx, name)
		if err != nil {
			return nil, err
		}
		return appendEvent(nil, "", &e.Event, e.Missing), nil
	})
}

// start answers GET /api/v1/timelines/NAME/start.
func (a *API) start(w http.ResponseWriter, r *http.Request) error {
	return a.about(w, r, func(ctx context.Context, name string) ([]byte, error) {
		start, err := a.engine.Start(ctx, name)
		return append(appendStart([]byte{'{'}, start), '}'), err
	})
}

// appendStart appends the members "start" and "first" of a timeline.
func appendStart(to []byte, s timeline.Start) []byte {
	to = append(to, `"start":`...)
	to = strconv.AppendInt(to, floorMS(s.Bucket), 10)
	to = append(to, `,"first":`...)
	return appendPosition(to, s.First)
}

// stats answers GET /api/v1/timelines/NAME/stats.
func (a *API) stats(w http.ResponseWriter, r *http.Request) error {
	return a.about(w, r, func(ctx context.Context, name string) ([]byte, error) {
		st, err := a.engine.Stats(ctx, name)
		if err != nil {
			return nil, err
		}
		return appendStats(nil, &st)
	})
}

func appendStats(to []byte, st *timeline.Stats) ([]byte, error) {
	layout, err := json.Marshal(shownLayoutOf(st.Layout))
	if err != nil {
		return nil, err
	}
	to = appendStart(append(to, '{'), st.Start)
	to = append(to, `,"newest":`...)
	to = appendPosition(to, st.Newest)
	return fmt.Appendf(to, `,"rate":%.6g,"bytes":%.6g,"bucket":{"from":%d,"until":%d},"layout":%s,"version":%d,"retention":%d,"appended":%d}`,
		st.Rate, st.Bytes, floorMS(st.Bucket.Start), floorMS(st.Bucket.EndExcl-1), layout, st.Version, st.Retained.Milliseconds(), st.Appended), nil
}
