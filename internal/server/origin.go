package server

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"varve/internal/clip"
	"varve/internal/httpapi"
)

// anyOrigin in Config.AllowedOrigins lets every web page read, as KairosDB does.
const anyOrigin = "*"

// A guard keeps web pages of other origins from using a browser that reaches
// this server. Programs other than browsers send neither Origin nor
// Sec-Fetch-Site and are served.
//
// Nor do browsers send them with every request: a GET to a server that is reached by plain http and
// is not on loopback, for an image for instance, has at most a Referer, and a page can suppress
// that. So a browser's GET that changes something must show by one of the three that a page of this
// server sent it.
//
// With DNS rebinding, the name of a page's own site leads to this server, so the browser sees one
// origin. Such requests have a foreign name in Host. The guard checks Host on loopback only:
// elsewhere it does not know the server's names.
type guard struct {
	loopback bool
	origins  *atomic.Pointer[origins]
}

// origins are Config.AllowedOrigins, ready for use.
type origins struct {
	any        bool // may read
	protection *http.CrossOriginProtection
	hosts      []string // of the origins; names of this server behind a proxy
}

// newOrigins parses a list of origins.
func newOrigins(list []string) (*origins, error) {
	o := &origins{protection: http.NewCrossOriginProtection()}
	for _, text := range list {
		if text == anyOrigin {
			o.any = true
			continue
		}
		if err := o.protection.AddTrustedOrigin(text); err != nil {
			return nil, fmt.Errorf("allowed_origins: %q: want scheme://host or scheme://host:port, as a browser sends it, or * for reading by any page", text)
		}
		if u, err := url.Parse(text); err == nil {
			o.hosts = append(o.hosts, strings.ToLower(u.Hostname()))
		}
	}
	return o, nil
}

// A grant says what the origin of a request allows it to do.
type grant int

const (
	mayNothing grant = iota
	mayVisit         // open a page of this server by a link
	mayRead
	mayLook // all but change something by GET or HEAD
	mayAll
)

// of returns what r may do.
func (o *origins) of(r *http.Request) grant {
	asked := *r
	asked.Method = http.MethodPost // Check lets every GET and HEAD pass
	switch {
	case o.protection.Check(&asked) == nil:
		return mayAll
	case o.any:
		return mayRead
	case r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Origin") == "":
		return mayVisit
	}
	return mayNothing
}

// check returns what a request may do. refusal is the error of a request that is
// refused, else "".
func (g guard) check(r *http.Request) (refusal string, may grant) {
	o := g.origins.Load()
	if g.loopback && !isOwnName(r.Host, o.hosts) {
		return fmt.Sprintf("the header Host has the name %q, but this server listens on loopback only; use 127.0.0.1 or localhost, or add http://%s to server.allowed_origins if the server has this name", clip.Text(r.Host, clipped), clip.Text(r.Host, clipped)), mayNothing
	}
	if len(r.Header["Origin"]) == 0 && len(r.Header["Sec-Fetch-Site"]) == 0 {
		if isBrowser(r) && !o.refersToOwn(r) {
			return "", mayLook
		}
		return "", mayAll
	}
	if may = o.of(r); may == mayNothing {
		return refusedOrigin(r, "web pages of another origin are not served"), may
	}
	return "", may
}

// isBrowser reports whether a request says that a browser sends it. A page cannot
// choose the User-Agent of an image or a link.
func isBrowser(r *http.Request) bool { return strings.HasPrefix(r.UserAgent(), "Mozilla/") }

// refersToOwn reports whether a request comes from a page of this server, or of an
// origin that may do everything, by its Referer.
func (o *origins) refersToOwn(r *http.Request) bool {
	referer, err := url.Parse(r.Referer())
	if err != nil || referer.Host == "" {
		return false
	}
	asked := *r
	asked.Header = http.Header{"Origin": {referer.Scheme + "://" + referer.Host}}
	return o.of(&asked) == mayAll
}

// refusedLook is the error of a GET that changes something and may have been sent by any page.
const refusedLook = "a browser sent this GET, which changes something, and does not say that a page of this server asked for it; " +
	"send it by POST or DELETE, use a program that is not a browser, or add the page's origin to server.allowed_origins"

// refusedOrigin says what a page of another origin may not do.
func refusedOrigin(r *http.Request, why string) string {
	origin := cmp.Or(r.Header.Get("Origin"), "the page's origin")
	return why + "; add " + clip.Text(origin, clipped) + " to server.allowed_origins if it may use this server"
}

// isOwnName reports whether a request's Host can be a name of a server on loopback. Addresses and
// names without a dot can: no other site can own them, so no site can use them for DNS rebinding.
func isOwnName(host string, others []string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	if !strings.Contains(name, ".") || strings.HasSuffix(name, ".localhost") {
		return true
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return slices.Contains(others, name)
}

// permit applies a grant that is less than mayAll. A request that changes nothing
// goes on, marked as read only; others are refused.
func (rt *router) permit(rw *response, may grant) (refusal string) {
	r := rw.request
	if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
		return rt.permitPreflight(r, may)
	}
	if may == mayLook {
		if (r.Method == http.MethodGet || r.Method == http.MethodHead) && !rt.reads(r, r.Method) {
			return refusedLook
		}
		return ""
	}
	if !rt.reads(r, r.Method) {
		return refusedOrigin(r, "web pages of another origin may not change anything")
	}
	if may == mayVisit && r.Method != http.MethodGet && r.Method != http.MethodHead {
		return refusedOrigin(r, "web pages of another origin are not served")
	}
	rw.request = r.WithContext(httpapi.WithReadOnly(r.Context()))
	return ""
}

func (rt *router) permitPreflight(r *http.Request, may grant) (refusal string) {
	if may == mayRead && rt.reads(r, r.Header.Get("Access-Control-Request-Method")) {
		return ""
	}
	return refusedOrigin(r, "web pages of another origin may not do this")
}

// reads reports whether a request with this path and method changes nothing.
func (rt *router) reads(r *http.Request, method string) bool {
	asked := *r
	asked.Method = method
	_, pattern := rt.mux().Handler(&asked)
	return !rt.changes[pattern] // without a route nothing happens
}

// allowOrigin tells a browser which pages may read the answer. Without an origin the header is
// KairosDB's: no browser looks at it then.
func (rw *response) allowOrigin(h http.Header) {
	if rw.request.Header.Get("Origin") == "" {
		return
	}
	if rw.origin == "" {
		h.Del("Access-Control-Allow-Origin")
		return
	}
	h.Set("Access-Control-Allow-Origin", rw.origin)
	if rw.origin != anyOrigin {
		h.Add("Vary", "Origin")
	}
}
