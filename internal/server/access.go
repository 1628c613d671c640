package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"varve/internal/audit"
	"varve/internal/auth"
	"varve/internal/clip"
	"varve/internal/httpapi"
	"varve/internal/principal"
	"varve/internal/stream"
)

// guarded returns a route's handler that first checks whether the sender may use the route.
func (rt *router) guarded(route httpapi.Route) http.Handler {
	next := route.Checked()
	if route.Access == httpapi.Public {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, id, held, refusal := rt.identify(w, r, route)
		if rw, ok := w.(*response); ok {
			rw.sender = id.Name
		}
		if held != nil {
			defer held.Release()
			rt.answerEndOfRights(w, r, held)
		}
		if refusal != nil {
			// Unknown senders cannot fill the audit log: their refusals are in the server's log. A sender that no
			// rule applies to may have any name, so the refusals of its address are limited.
			if route.Access == httpapi.Admin && refusal.Known() && (id.Name != "" || !refusal.Throttled) && rt.audit.Load().RoomIn(id.By, refusal.Name, time.Now()) == 0 {
				rt.record(r, route, id, audit.Event{Sender: refusal.Name, Status: http.StatusForbidden, Detail: refusal.Text})
			}
			rt.refuseSender(w, r, refusal)
			return
		}
		if p := principal.Of(r.Context()); !rt.hasTenant(p.Tenant) {
			httpapi.WriteErrors(w, http.StatusNotFound, "there is no tenant "+p.Tenant)
			return
		}
		if route.Audited() {
			if wait := rt.audit.Load().RoomIn(id.By, id.Name, time.Now()); wait > 0 {
				httpapi.AskLater(w.Header(), wait)
				httpapi.WriteUnavailable(w, r, "the requests of "+clip.Text(id.Name, clipped)+" have filled their share of the audit log, and more would push out the records of others; send this again in some minutes, or send more slowly")
				return
			}
			rt.serveAudited(w, r, route, id, next)
		} else {
			next.ServeHTTP(w, r)
		}
		if held != nil && held.Ended() {
			rt.cut(w, r)
		}
	})
}

// answerEndOfRights makes w say that the sender of a request has lost its rights. The handler fails
// as a consequence, and would blame the body or the store.
func (rt *router) answerEndOfRights(w http.ResponseWriter, r *http.Request, held *auth.Held) {
	rw, ok := w.(*response)
	if !ok {
		return
	}
	rw.instead = func() bool {
		if !held.Ended() {
			return false
		}
		clear(w.Header()) // it describes an answer that is not sent
		rt.cut(w, r)
		return true
	}
}

// cut ends the answer to a sender that has lost its rights meanwhile. An answer that has begun is
// cut off, so that the client cannot take it for a complete one.
func (rt *router) cut(w http.ResponseWriter, r *http.Request) {
	rw, ok := w.(*response)
	switch {
	case !ok || rw.status == 0:
		w.Header().Set("Connection", "close")
		rt.refuseSender(w, r, &auth.Refusal{Reason: auth.ReasonToken, Text: auth.ErrEnded.Error()})
	case rw.status < http.StatusBadRequest:
		panic(http.ErrAbortHandler)
	}
}

// hasTenant reports whether the server serves a tenant.
func (rt *router) hasTenant(name string) bool {
	if name == principal.Default || name == "" { // the latter only without a listener
		return true
	}
	return rt.tenants != nil && rt.tenants(name)
}

// identify returns r on behalf of its sender, if that sender may use the route.
// The context of r ends when the sender loses its rights. held, if it is not nil, is released at the end.
func (rt *router) identify(w http.ResponseWriter, r *http.Request, route httpapi.Route) (_ *http.Request, _ auth.Identity, held *auth.Held, _ *auth.Refusal) {
	asked, _ := r.Context().Value(tenantKey{}).(string)
	if rt.keeper == nil {
		if asked == "" {
			return r, auth.Identity{}, nil, nil // the context of all connections says Everyone
		}
		everyone := principal.Everyone
		everyone.Tenant = asked
		return r.WithContext(principal.With(r.Context(), everyone)), auth.Identity{}, nil, nil
	}
	authorizations, users := r.Header["Authorization"], r.Header[rt.proxyHeader]
	claim := auth.Claim{
		Stream: rt.stream, Remote: remoteOf(r.RemoteAddr), Tenant: asked, Method: r.Method, Path: r.URL.Path,
		Authorization: first(authorizations), SeveralAuthorizations: len(authorizations) > 1,
		User: first(users), SeveralUsers: len(users) > 1,
	}
	if c := connOf(r.Context()); c != nil {
		claim.Connection = c
	}
	id, err := rt.keeper.Identify(claim)
	if err != nil {
		refusal, ok := errors.AsType[*auth.Refusal](err)
		if !ok {
			panic(err) // a fault of Varve
		}
		return r, id, nil, refusal
	}
	if reason, text := rt.lacking(r, route, id); reason != "" {
		return r, id, nil, rt.keeper.Refuse(claim, id, reason, text)
	}
	ender, _ := w.(auth.Ender)
	held = rt.keeper.Hold(r.Context(), claim, id, ender)
	return r.WithContext(held), id, held, nil
}

// first returns the first value of a header. Its name must be canonical: making it so would take as
// long as the rest of the work.
func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// lacking says what a sender lacks for a route, "" if nothing.
func (rt *router) lacking(r *http.Request, route httpapi.Route, id auth.Identity) (reason, text string) {
	switch {
	case !id.Rights.Has(route.Access.Right()):
		return auth.ReasonRight, fmt.Sprintf("this needs the role %s; %s has %s", route.Access, id.Name, id.Rights)
	case route.Server && !id.Whole:
		return auth.ReasonRight, fmt.Sprintf("this concerns the server as a whole and needs the role %s for all tenants; %s has it for some", route.Access, id.Name)
	case id.Prefix != "" && !route.Metrics:
		return auth.ReasonPrefix, fmt.Sprintf("this needs rights for all metrics; %s may only use metrics that begin with %q", id.Name, id.Prefix)
	case id.Ambient && !isOwnName(r.Host, rt.guard.origins.Load().hosts):
		return auth.ReasonRight, "the address alone gives rights here, so Host has to be an address, a name without a dot, or the host of an entry of server.allowed_origins"
	}
	return "", ""
}

// refuseSender answers 401 or 403. KairosDB's Java client leaks a connection with each such answer
// that has a body, so that client gets none.
func (rt *router) refuseSender(w http.ResponseWriter, r *http.Request, refusal *auth.Refusal) {
	if rw, ok := w.(*response); ok {
		rw.told = true
	}
	status := http.StatusForbidden
	if !refusal.Known() {
		status = http.StatusUnauthorized
		w.Header()["Www-Authenticate"] = []string{`Basic realm="varve", charset="UTF-8"`, `Bearer realm="varve"`}
	}
	if refusal.Throttled {
		w.Header().Set("Connection", "close")
	}
	if httpapi.OmitsBody(r, status) {
		httpapi.WriteEmpty(w, status)
		return
	}
	httpapi.WriteErrors(w, status, refusal.Text)
}

// remoteOf is the address in a net.Conn's text.
func remoteOf(text string) netip.Addr {
	ap, err := netip.ParseAddrPort(text)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}

// connOf returns the connection of a request, nil in tests without a listener.
func connOf(ctx context.Context) *stream.Conn {
	switch c := ctx.Value(connKey{}).(type) {
	case *httpConn:
		return c.Conn
	case net.Conn:
		return stream.Of(c)
	}
	return nil
}

// tenantKey is the key of the tenant that the path of a request names.
type tenantKey struct{}

// tenantMark begins the path of a request that names a tenant.
const tenantMark = "/t/"

// withTenant takes the tenant out of the path of a request, /t/NAME/..., and puts it into
// the context. ok is false if the name cannot be one.
func withTenant(r *http.Request) (without *http.Request, ok bool) {
	rest, named := strings.CutPrefix(r.URL.Path, tenantMark)
	if !named {
		return r, true
	}
	name, _, _ := strings.Cut(rest, "/")
	if principal.CheckTenant(name) != nil {
		return r, false
	}
	without = r.WithContext(context.WithValue(r.Context(), tenantKey{}, name))
	without.URL = new(url.URL)
	*without.URL = *r.URL
	strip := func(path string) string {
		if path = strings.TrimPrefix(path, tenantMark+name); path == "" {
			return "/"
		}
		return path
	}
	without.URL.Path = strip(r.URL.Path)
	if raw := r.URL.RawPath; raw != "" {
		if after, plain := strings.CutPrefix(raw, tenantMark+name); !plain || after != "" && after[0] != '/' {
			return r, false // a part of the mark or the name, or the slash behind it, is escaped
		}
		without.URL.RawPath = strip(raw)
	}
	return without, true
}

// admitLine identifies the client of a line protocol, which needs the right to write.
func (s *Server) admitLine(name string) func(context.Context, *stream.Conn) (context.Context, error) {
	return func(ctx context.Context, c *stream.Conn) (context.Context, error) {
		claim := auth.Claim{Stream: name, Kind: auth.Lines, Remote: remoteOf(c.RemoteAddr().String()), Connection: c}
		id, err := s.admit(claim)
		if err != nil {
			return nil, err
		}
		held := s.keeper.Hold(ctx, claim, id, closer{c.Conn})
		context.AfterFunc(ctx, held.Release)
		return held, nil
	}
}

// A closer closes the connection of a sender that has lost its rights.
type closer struct{ net.Conn }

// EndOfRights implements [auth.Ender].
func (c closer) EndOfRights() { c.Close() }

func (s *Server) admit(claim auth.Claim) (auth.Identity, error) {
	id, err := s.keeper.Identify(claim)
	if err != nil {
		return id, err
	}
	if !id.Rights.Has(principal.Write) {
		return id, s.keeper.Refuse(claim, id, auth.ReasonRight, fmt.Sprintf("this needs the role write; %s has %s", id.Name, id.Rights))
	}
	if !s.api.router.hasTenant(id.Tenant) {
		return id, s.keeper.Refuse(claim, id, auth.ReasonTenant, "there is no tenant "+id.Tenant)
	}
	return id, nil
}

// admitDatagram identifies the sender of a datagram by its address alone, which can be forged. It
// is nil without authentication.
func (s *Server) admitDatagram(name string) func(netip.Addr) (principal.Principal, error) {
	if s.keeper == nil {
		return nil
	}
	return func(a netip.Addr) (principal.Principal, error) {
		id, err := s.admit(auth.Claim{Stream: name, Kind: auth.Datagrams, Remote: a.Unmap().WithZone("")})
		return id.Principal, err
	}
}
