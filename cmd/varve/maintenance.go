package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"varve/internal/embedded"
	"varve/internal/httpapi"
	"varve/internal/store"
	"varve/internal/units"
)

const (
	checkRate     = 32 * units.MiB // a second, of a running server's disk, unless asked for another
	statsPages    = 512            // that one request for statistics reads
	statsTop      = 20
	backupMaxBody = 4 << 10
)

// A checkLine is one line of the answer to POST /admin/check: progress, then the
// report or an error.
type checkLine struct {
	Progress *embedded.CheckProgress `json:"progress,omitempty"`
	Report   *embedded.CheckReport   `json:"report,omitempty"`
	Error    string                  `json:"error,omitempty"`
}

// A backupRequest is the body of POST /admin/backup.
type backupRequest struct {
	// Dir is the name of the directory to make in embedded.backup_dir; empty for
	// one that tells the time.
	Dir string `json:"dir"`
}

// maintenance lists the routes by which a running server is looked after.
func maintenance(s *embedded.Store) []httpapi.Route {
	return []httpapi.Route{
		{Method: http.MethodPost, Path: "/admin/compact", Parameters: httpapi.None, Handler: oneAtATime("compaction", compact(s))},
		{Method: http.MethodGet, Path: "/admin/cardinality", Parameters: []string{"limit", "metric"}, Handler: cardinality(s)},
		{Method: http.MethodPost, Path: "/admin/check", Parameters: []string{"rate"}, Handler: oneAtATime("check", checkHandler(s))},
		{Method: http.MethodGet, Path: "/admin/stats", Parameters: []string{"top"}, Handler: statsHandler(s)},
		{Method: http.MethodPost, Path: "/admin/backup", Parameters: httpapi.None, Handler: backupHandler(s)},
	}
}

// oneAtATime answers 409 while another request of a kind is worked on: further ones
// would wait without a bound, and do the same work again.
func oneAtATime(what string, h http.Handler) http.Handler {
	var running sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !running.TryLock() {
			httpapi.WriteErrors(w, http.StatusConflict, "another "+what+" is running; try again when it is done")
			return
		}
		defer running.Unlock()
		h.ServeHTTP(w, r)
	})
}

// checkHandler checks the store and streams lines of JSON.
func checkHandler(s *embedded.Store) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rate := checkRate
		if text := r.URL.Query().Get("rate"); text != "" {
			if err := rate.UnmarshalText([]byte(text)); err != nil || rate < 0 {
				httpapi.WriteErrors(w, http.StatusBadRequest, "rate: want bytes a second, for example 32MiB, or 0 for no limit")
				return
			}
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		out := json.NewEncoder(w)
		say := func(line checkLine) {
			out.Encode(line) // a client that is gone ends the context
			if f, ok := w.(http.Flusher); ok {
				f.Flush()
			}
		}
		report, err := s.Check(r.Context(), embedded.CheckOptions{
			BytesPerSecond: int64(rate),
			Progress:       func(p embedded.CheckProgress) { say(checkLine{Progress: &p}) },
		})
		if err != nil {
			say(checkLine{Error: err.Error()})
			return
		}
		say(checkLine{Report: report})
	})
}

// statsHandler says what takes the space, estimated from a bounded number of
// pages.
func statsHandler(s *embedded.Store) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		top := statsTop
		if text := r.URL.Query().Get("top"); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 || n > 1000 {
				httpapi.WriteErrors(w, http.StatusBadRequest, "top: want 1 to 1000")
				return
			}
			top = n
		}
		report, err := s.Space(r.Context(), embedded.SpaceOptions{Top: top, Pages: statsPages})
		answer(w, report, err)
	})
}

// backupHandler makes a backup and answers when it is done. The store refuses a
// second one meanwhile.
func backupHandler(s *embedded.Store) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request backupRequest
		body := json.NewDecoder(http.MaxBytesReader(w, r.Body, backupMaxBody))
		body.DisallowUnknownFields()
		if err := body.Decode(&request); err != nil {
			httpapi.WriteErrors(w, http.StatusBadRequest, `want {"dir": "name"}: `+err.Error())
			return
		}
		if request.Dir == "" {
			request.Dir = "varve-" + time.Now().UTC().Format("20060102T150405Z")
		}
		report, err := s.Backup(r.Context(), request.Dir)
		if err == nil {
			if full, err := filepath.Abs(report.Dir); err == nil { // the client is elsewhere
				report.Dir = full
			}
		}
		answer(w, report, err)
	})
}

// answer writes a report as JSON, or the error.
func answer(w http.ResponseWriter, report any, err error) {
	if err != nil {
		answerError(w, err)
		return
	}
	httpapi.SetHeaders(w.Header())
	json.NewEncoder(w).Encode(report) // a client that is gone cannot be told
}

func answerError(w http.ResponseWriter, err error) {
	input, busy, limit := (*store.InputError)(nil), (*store.UnavailableError)(nil), (*store.LimitError)(nil)
	switch {
	case errors.As(err, &input), errors.As(err, &limit):
		httpapi.WriteErrors(w, http.StatusBadRequest, err.Error())
	case errors.As(err, &busy):
		httpapi.WriteErrors(w, http.StatusServiceUnavailable, err.Error())
	default:
		httpapi.WriteErrors(w, http.StatusInternalServerError, err.Error())
	}
}

// compact writes everything to files and merges them, and answers when it is
// done.
func compact(s *embedded.Store) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.Compact(r.Context()); err != nil {
			answerError(w, err)
			return
		}
		httpapi.SetHeaders(w.Header())
		w.WriteHeader(http.StatusNoContent)
	})
}
