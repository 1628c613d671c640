package admin

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"varve/internal/clip"
	"varve/internal/embedded"
	"varve/internal/embedded/offline"
	"varve/internal/gate"
	"varve/internal/httpapi"
	"varve/internal/query"
	"varve/internal/units"
)

// StatsTop is the default length of the lists of GET /admin/stats.
const StatsTop = 20

const (
	checkRate     = 32 * units.MiB // default rate per second at which a check reads the disk of a running server
	statsRow      = 4 << 10        // memory of a row of statistics, whose name may be long
	statsPages    = 512            // pages that one request for statistics reads
	backupMaxBody = 4 << 10
)

// A CheckLine is one line of the answer to POST /admin/check: progress, then the
// report or an error.
type CheckLine struct {
	Progress *offline.CheckProgress `json:"progress,omitempty"`
	Report   *offline.CheckReport   `json:"report,omitempty"`
	Error    string                 `json:"error,omitempty"`
}

// A BackupRequest is the body of POST /admin/backup.
type BackupRequest struct {
	// Dir is the name of the directory to make in embedded.backup_dir. If it is empty,
	// the name is the time.
	Dir string `json:"dir"`
}

// Embedded lists the routes of a server with an embedded store. queries counts the memory of
// large answers. log may be nil.
func Embedded(s *embedded.Store, queries *query.Engine, log *slog.Logger) []httpapi.Route {
	on := httpapi.On
	return append([]httpapi.Route{
		on(http.MethodPost, "/admin/compact", httpapi.Admin, oneAtATime("compaction", compact(s, log))).Taking(),
		on(http.MethodGet, "/admin/cardinality", httpapi.Admin, cardinality(queries, func(metric string, limit int) CardinalityAnswer {
			c := s.Cardinality(metric, limit)
			a := newCardinalityAnswer(metric, c.Cardinality, c.Report, c.MemoryBytes)
			a.Totals.WithoutSample, a.Totals.Ever = &c.UnusedSeries, &c.SeriesEverSeen
			return a
		})).Taking("limit", "metric"),
		on(http.MethodPost, "/admin/check", httpapi.Admin, oneAtATime("check", check(s))).Taking("rate"),
		on(http.MethodGet, "/admin/stats", httpapi.Admin, stats(s, queries, log)).Taking("top"),
		on(http.MethodPost, "/admin/backup", httpapi.Admin, backup(s, log)).Taking(),
	}, elsewhere(onlyCassandra, "Cassandra")...)
}

// onlyCassandra lists the routes that a server with the embedded store lacks.
var onlyCassandra = []foreignRoute{
	{http.MethodGet, "/admin/cassandra", "GET /admin/stats says what this store holds"},
	{http.MethodGet, "/admin/deletes", "deletes here are complete when they are answered"},
	{http.MethodDelete, "/admin/deletes/{id}", "deletes here are complete when they are answered"},
	{http.MethodPost, "/admin/flush", "POST /admin/compact writes what is in memory to files"},
}

// check checks the store and streams lines of JSON.
func check(s *embedded.Store) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rate := checkRate
		if text := r.URL.Query().Get("rate"); text != "" {
			if err := rate.UnmarshalText([]byte(text)); err != nil || rate < 0 {
				httpapi.WriteErrors(w, http.StatusBadRequest, "rate: want bytes a second, for example 32MiB, or 0 for no limit")
				return
			}
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		out := json.NewEncoder(w)
		say := func(line CheckLine) {
			out.Encode(line) // a client that is gone ends the context
			if f, ok := w.(http.Flusher); ok {
				f.Flush()
			}
		}
		report, err := s.Check(r.Context(), offline.CheckOptions{
			BytesPerSecond: int64(rate),
			Progress:       func(p offline.CheckProgress) { say(CheckLine{Progress: &p}) },
		})
		if err != nil {
			say(CheckLine{Error: err.Error()})
			return
		}
		say(CheckLine{Report: report})
	}
}

// stats reports what uses the space, estimated from a bounded number of pages. Senders take turns,
// because while pages are read, all metrics in them are counted. What the report holds is charged
// to the memory of queries until the client has received it.
func stats(s *embedded.Store, queries *query.Engine, log *slog.Logger) http.HandlerFunc {
	turns := gate.New(1)
	return func(w http.ResponseWriter, r *http.Request) {
		top := StatsTop
		if text := r.URL.Query().Get("top"); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 || n > 1000 {
				httpapi.WriteErrors(w, http.StatusBadRequest, "top: want 1 to 1000")
				return
			}
			top = n
		}
		memory := queries.Unsent(r.Context(), r.RemoteAddr)
		defer memory.Free()
		if err := memory.AtLeast(int64(top) * statsRow); err != nil {
			answer(w, r, log, nil, err)
			return
		}
		var report *offline.SpaceReport
		read := func() (err error) {
			report, err = s.Space(r.Context(), offline.SpaceOptions{Top: top, Pages: statsPages})
			return err
		}
		if err := inTurn(turns, r, read); err != nil {
			answer(w, r, log, nil, err)
			return
		}
		httpapi.SetHeaders(w.Header())
		writeSpace(memory.Writer(w, httpapi.Cut(w)), report)
	}
}

// writeSpace sends a report row by row: names of metrics may be long.
func writeSpace(w io.Writer, r *offline.SpaceReport) {
	p := pieces{out: bufio.NewWriterSize(w, pieceBytes)}
	p.open("", '{')
	p.value("files", r.Files)
	p.value("file_bytes", r.FileBytes)
	p.value("samples", r.Samples)
	p.value("pages", r.Pages)
	p.value("pages_read", r.PagesRead)
	list(&p, "metrics", r.Metrics)
	p.value("metrics_total", r.MetricsTotal)
	list(&p, "codecs", r.Codecs)
	p.value("codecs_total", r.CodecsTotal)
	p.value("timeline_bytes", r.TimelineBytes)
	p.end()
}

// backup makes a backup and answers when it is done. Meanwhile the store refuses a
// second one.
func backup(s *embedded.Store, log *slog.Logger) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name, err := backupNameOf(http.MaxBytesReader(w, r.Body, backupMaxBody))
		if err != nil {
			httpapi.WriteErrors(w, http.StatusBadRequest, `want {"dir": "NAME"}, or {} for a name made from the time: `+err.Error())
			return
		}
		report, err := s.Backup(r.Context(), name)
		if err == nil {
			if full, err := filepath.Abs(report.Dir); err == nil { // a relative path means nothing to a client
				report.Dir = full
			}
		}
		answer(w, r, log, report, err)
	}
}

// backupNameOf reads the body of a request for a backup. The default name is the time
// in microseconds: with seconds, the second of two requests in one second would get an
// error that its name is taken.
func backupNameOf(body io.Reader) (string, error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return "", err
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return "", errors.New("the body is empty")
	}
	var request *BackupRequest
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&request); err != nil {
		return "", errors.New(clip.Text(err.Error(), 100)) // it may repeat the body
	}
	if request == nil || len(bytes.TrimSpace(text[d.InputOffset():])) > 0 {
		return "", errors.New("the body must be one object")
	}
	if request.Dir == "" {
		return "varve-" + time.Now().UTC().Format("20060102T150405.000000Z"), nil
	}
	return request.Dir, nil
}

// compact writes everything in memory to files and merges them, and answers when it is
// done.
func compact(s *embedded.Store, log *slog.Logger) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, log, nil, s.Compact(r.Context()))
	}
}
