package server

import (
	"io"
	"net/http"
	"time"

	"varve/internal/audit"
	"varve/internal/auth"
	"varve/internal/httpapi"
	"varve/internal/principal"
)

// recordedBody is how many bytes of a request's body the audit log keeps. For a delete, the body
// says what was deleted.
const recordedBody = 4096

// serveAudited answers a request and records the outcome.
func (rt *router) serveAudited(w http.ResponseWriter, r *http.Request, route httpapi.Route, id auth.Identity, next http.Handler) {
	read := &copied{ReadCloser: r.Body}
	own := *r
	if r.Body != http.NoBody {
		own.Body = read
	}
	defer func() {
		fault := recover()
		status := http.StatusInternalServerError
		if rw, ok := w.(*response); ok && (rw.status != 0 || fault == nil) {
			status = max(rw.status, http.StatusOK)
		}
		rt.record(r, route, id, "", status, string(read.text), detailOf(fault))
		if fault != nil {
			panic(fault) // for the router
		}
	}()
	next.ServeHTTP(w, &own)
}

// detailOf describes in the audit log how a handler ended that panicked with fault.
func detailOf(fault any) string {
	switch fault {
	case nil:
		return ""
	case http.ErrAbortHandler:
		return "the answer was cut off"
	}
	return "the handler panicked"
}

// record writes an event to the audit log.
func (rt *router) record(r *http.Request, route httpapi.Route, id auth.Identity, sender string, status int, body, detail string) {
	log := rt.audit.Load()
	if log == nil {
		return
	}
	p, path := principal.Of(r.Context()), r.URL.Path
	if id.Name != "" {
		sender = id.Name
	}
	if id.Tenant != "" {
		p.Tenant = id.Tenant
	}
	if asked, ok := r.Context().Value(tenantKey{}).(string); ok { // a refused sender may be of another one
		p.Tenant, path = asked, tenantMark+asked+path
	}
	log.Add(audit.Event{
		Time: time.Now().UTC(), Sender: sender, By: id.By, Tenant: p.Tenant, Remote: r.RemoteAddr,
		Action: route.Method + " " + route.Path, Path: path, Query: r.URL.RawQuery, Body: body, Status: status, Detail: detail,
	})
}

// A copiedBody keeps the beginning of what is read of it.
type copied struct {
	io.ReadCloser
	text []byte
}

func (c *copied) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.text = append(c.text, p[:min(n, recordedBody-len(c.text))]...)
	return n, err
}
