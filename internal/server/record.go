package server

import (
	"cmp"
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
		rt.record(r, route, id, audit.Event{Status: status, Body: string(read.text), Detail: detailOf(fault)})
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

// record writes a request to the audit log. e has its outcome, and the sender if id is not known.
func (rt *router) record(r *http.Request, route httpapi.Route, id auth.Identity, e audit.Event) {
	log := rt.audit.Load()
	if log == nil {
		return
	}
	e.Time, e.By, e.Remote = time.Now().UTC(), id.By, r.RemoteAddr
	e.Sender = cmp.Or(id.Name, e.Sender)
	e.Tenant = cmp.Or(id.Tenant, principal.Of(r.Context()).Tenant)
	e.Action, e.Path, e.Query = route.Method+" "+route.Path, r.URL.Path, r.URL.RawQuery
	if asked, ok := r.Context().Value(tenantKey{}).(string); ok { // a refused sender may be of another one
		e.Tenant, e.Path = asked, tenantMark+asked+e.Path
	}
	log.Add(e)
}

// A copied body keeps the beginning of what is read of it.
type copied struct {
	io.ReadCloser
	text []byte
}

func (c *copied) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.text = append(c.text, p[:min(n, recordedBody-len(c.text))]...)
	return n, err
}
