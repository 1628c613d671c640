package rollup

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"varve/internal/clip"
	"varve/internal/failure"
	"varve/internal/httpapi"
	"varve/internal/query"
	"varve/internal/store"
)

const root = "/api/v1/rollups"

// Routes lists the endpoints of roll-ups and their preflights.
func (s *Scheduler) Routes() []httpapi.Route {
	on := func(method, path string, access httpapi.Access, h func(http.ResponseWriter, *http.Request) error) httpapi.Route {
		return httpapi.On(method, path, access, func(w http.ResponseWriter, r *http.Request) {
			if method == http.MethodGet || method == http.MethodDelete {
				httpapi.DropBody(r)
			}
			if err := h(w, r); err != nil {
				failure.Answer(w, r, s.log, err, httpapi.WriteErrors)
			}
		})
	}
	routes := []httpapi.Route{
		on(http.MethodPost, root, httpapi.Write, s.postTask).OnRecord(),
		on(http.MethodGet, root, httpapi.Read, s.listTasks),
		on(http.MethodGet, root+"/{id}", httpapi.Read, s.getTask),
		on(http.MethodPut, root+"/{id}", httpapi.Write, s.putTask).OnRecord(),
		on(http.MethodDelete, root+"/{id}", httpapi.Delete, s.deleteTask),
		on(http.MethodGet, root+"/status/{id}", httpapi.Read, s.getStatus),
		on(http.MethodGet, root+"/backfill/{id}", httpapi.Write, s.backfillTask).ByGet().OnRecord(), // as in KairosDB
		on(http.MethodPost, root+"/backfill/{id}", httpapi.Write, s.backfillTask).OnRecord(),
	}
	for _, path := range []string{root, root + "/{id}", root + "/status/{id}", root + "/backfill/{id}"} {
		routes = append(routes, httpapi.On(http.MethodOptions, path, httpapi.Public, httpapi.PreflightOfMethod))
	}
	return routes
}

// notFound is the error for a task id that has no stored task or status.
func notFound(what, id string) error {
	return failure.New(http.StatusNotFound, what+" not found for id "+clip.Text(id, maxID))
}

func writeJSON(w http.ResponseWriter, answer any) error {
	body, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	httpapi.SetHeaders(w.Header())
	w.Write(body)
	return nil
}

// readTask reads a task from a request's body.
func (s *Scheduler) readTask(r *http.Request, id string) (*task, error) {
	text, err := s.engine.ReadText(r.Context(), r.RemoteAddr, r.Body, query.TextLimit{
		Key: "bytes of a roll-up task", Max: int64(s.config.MaxTaskSize), What: "bytes of a roll-up task", Announced: r.ContentLength,
	})
	if err != nil {
		return nil, err
	}
	defer text.Close()
	if len(text.Bytes()) == 0 {
		return nil, badRequest("roll-up task: the request has no body")
	}
	var t *task
	err = text.Parse(func(text []byte) (err error) {
		t, err = parseTask(s.parser, text, id, newID)
		return err
	})
	if err != nil {
		return nil, err
	}
	return t, t.accept()
}

// newID returns a random UUID.
func newID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// writeStored answers a request that stored a task, as KairosDB does.
func writeStored(w http.ResponseWriter, t *task) error {
	return writeJSON(w, struct {
		ID         string            `json:"id"`
		Name       string            `json:"name"`
		Attributes map[string]string `json:"attributes"`
	}{t.id, t.name, map[string]string{"url": root + "/" + url.PathEscape(t.id)}})
}

func (s *Scheduler) postTask(w http.ResponseWriter, r *http.Request) error {
	t, err := s.readTask(r, "")
	if err != nil {
		return err
	}
	if err := s.put(r.Context(), t, false); err != nil {
		return err
	}
	return writeStored(w, t)
}

func (s *Scheduler) putTask(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	t, err := s.readTask(r, id)
	if err != nil {
		return err
	}
	if err := s.put(r.Context(), t, true); err != nil {
		return resourceError(err, id)
	}
	return writeStored(w, t)
}

// resourceError words errNoTask as KairosDB does.
func resourceError(err error, id string) error {
	if errors.Is(err, errNoTask) {
		return notFound("Resource", id)
	}
	return err
}

// listTasks sends the tasks one by one, and holds one text at a time.
func (s *Scheduler) listTasks(w http.ResponseWriter, r *http.Request) error {
	ids, err := s.catalogue.ids(r.Context())
	if err != nil {
		return err
	}
	before := "["
	for _, id := range ids {
		sent, err := s.sendTask(w, r, before, id)
		if err != nil && before == "[" && !sent {
			return err
		}
		if err != nil {
			failure.Abort(r, s.log, err)
		}
		if sent {
			before = ","
		}
	}
	end := "]"
	if before == "[" {
		end = "[]"
	}
	httpapi.SetHeaders(w.Header())
	io.WriteString(w, end)
	return nil
}

func (s *Scheduler) getTask(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	switch sent, err := s.sendTask(w, r, "", id); {
	case sent:
		return nil // the client is gone
	case err != nil:
		return err
	}
	return notFound("Resource", id)
}

// sendTask writes the text before, then the task's text, or writes nothing if there is
// no such task. The text is charged to the memory of queries until the client has
// received it. sent reports whether anything was written, also with an error.
func (s *Scheduler) sendTask(w http.ResponseWriter, r *http.Request, before, id string) (sent bool, err error) {
	memory := s.engine.Unsent(r.Context(), r.RemoteAddr)
	defer memory.Free()
	if err := memory.AtLeast(int64(s.config.MaxTaskSize)); err != nil {
		return false, err
	}
	text, there, err := s.catalogue.get(r.Context(), configKey, id)
	if err != nil || !there {
		return false, err
	}
	if err := memory.AtLeast(int64(len(text))); err != nil { // another program may have stored it
		return false, err
	}
	httpapi.SetHeaders(w.Header())
	io.WriteString(w, before)
	return true, httpapi.WriteText(memory.Writer(w, httpapi.Cut(w)), text)
}

func (s *Scheduler) deleteTask(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if err := s.remove(r.Context(), id); err != nil {
		return resourceError(err, id)
	}
	s.log.Info("roll-up task deleted; its results stay", "id", id, "client", r.RemoteAddr)
	httpapi.SetHeaders(w.Header())
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// statusRoom is the memory that the status of a task takes while it is read and written as JSON, as a multiple of the
// largest task: it repeats the names of the task, with up to six bytes for one.
const statusRoom = 32

// getStatus answers with a status, which is charged to the memory of queries until the client has received it.
func (s *Scheduler) getStatus(w http.ResponseWriter, r *http.Request) error {
	memory := s.engine.Unsent(r.Context(), r.RemoteAddr)
	defer memory.Free()
	if err := memory.AtLeast(statusRoom * int64(s.config.MaxTaskSize)); err != nil {
		return err
	}
	answer, err := s.answerStatus(r, r.PathValue("id"))
	if err != nil {
		return err
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	memory.AtMost(int64(cap(body)))
	httpapi.SetHeaders(w.Header())
	memory.Writer(w, httpapi.Cut(w)).Write(body) // an error means that the client is gone
	return nil
}

func (s *Scheduler) answerStatus(r *http.Request, id string) (*statusAnswer, error) {
	st, err := s.catalogue.status(r.Context(), id)
	if err != nil {
		return nil, err
	}
	if st == nil {
		return nil, notFound("Status", id)
	}
	a := &statusAnswer{Statuses: make([]metricAnswer, 0, len(st.Statuses)), ExecutingHost: st.ExecutingHost, NextScheduled: st.NextScheduled}
	for _, m := range st.Statuses {
		a.Statuses = append(a.Statuses, metricAnswer{
			MetricName: m.MetricName, LastExecuted: m.LastExecuted, DataPointCount: m.DataPointCount,
			ExecutionLength: m.ExecutionLength, ErrorMessage: m.ErrorMessage, LastExecution: m.LastExecution,
		})
	}
	return a, s.addLag(r, id, a)
}

// addLag adds the members derived from the watermarks, if the status belongs to the
// current version of the task.
func (s *Scheduler) addLag(r *http.Request, id string, a *statusAnswer) error {
	ctx := r.Context()
	text, there, err := s.catalogue.get(ctx, configKey, id)
	if err != nil || !there {
		return err
	}
	var t *task
	parseErr := s.engine.Parse(ctx, r.RemoteAddr, query.LaneOf(len(text)), func() (err error) {
		t, err = parseTask(s.parser, []byte(text), id, nil)
		return err
	})
	if store.IsBusy(parseErr) || ctx.Err() != nil {
		return parseErr
	}
	if parseErr != nil {
		return nil // the rest of the status is still useful
	}
	marks, err := s.catalogue.watermarks(ctx, id)
	if err != nil {
		return err
	}
	n := 0
	for r, src := range t.sources() {
		if n == len(a.Statuses) || a.Statuses[n].MetricName != src.metric {
			return nil
		}
		one := &a.Statuses[n]
		one.Late = s.late.Count(id, src.key)
		if m, ok := marks[src.key]; ok {
			lag := s.now().UnixMilli() - m.UntilMS
			one.SaveAs, one.Watermark, one.LagMS = r.saveAs, &m.UntilMS, &lag
		}
		n++
	}
	return nil
}

// backfillForm is KairosDB's yyyy-MM-dd-HH-mm-ss-SSS, in UTC here.
const backfillForm = "2006-01-02-15-04-05"

func backfillTime(r *http.Request, name string) (ms int64, given bool, err error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, false, nil
	}
	bad := badRequest(name + " " + clip.Text(text, clippedBytes) + " is not a time of the form yyyy-MM-dd-HH-mm-ss-SSS in UTC, for example 2024-01-31-00-00-00-000")
	if len(text) != len(backfillForm)+4 || text[len(backfillForm)] != '-' {
		return 0, true, bad
	}
	// Go parses milliseconds only after a dot.
	t, parseErr := time.Parse(backfillForm+".000", text[:len(backfillForm)]+"."+text[len(backfillForm)+1:])
	if parseErr != nil {
		return 0, true, bad
	}
	return t.UnixMilli(), true, nil
}

// backfillTask also answers GET, as in KairosDB, although it writes.
func (s *Scheduler) backfillTask(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	start, given, err := backfillTime(r, "startTime")
	if err != nil {
		return err
	}
	if !given {
		return badRequest("startTime may not be null")
	}
	now := s.now().UnixMilli()
	end, given, err := backfillTime(r, "endTime")
	if err != nil {
		return err
	}
	if !given || end > now {
		end = now
	}
	if end < start {
		return badRequest("endTime must not be before startTime")
	}
	if err := s.fill(r.Context(), id, start, end); err != nil {
		return resourceError(err, id)
	}
	httpapi.SetHeaders(w.Header())
	w.WriteHeader(http.StatusNoContent)
	return nil
}
