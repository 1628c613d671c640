package server

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"varve/internal/httpapi"
)

// Requests are served or refused by their origin, and the answer tells the browser
// which pages may read it.
func TestOrigins(t *testing.T) {
	const grafana = "https://grafana.example.org"
	var served atomic.Bool
	s := start(t, func(o *Options) {
		answer := func(w http.ResponseWriter, r *http.Request) {
			served.Store(true)
			w.Header().Set("Access-Control-Allow-Origin", "*") // as the front ends do
			if httpapi.IsReadOnly(r.Context()) {
				io.WriteString(w, "read only")
			}
		}
		posted := httpapi.On("POST", "/query", httpapi.Read, answer)
		kill := httpapi.On("GET", "/kill/{id}", httpapi.Admin, answer).ByGet()
		o.Routes = []httpapi.Route{
			posted, kill, route("GET", "/names", answer), route("POST", "/points", answer), route("DELETE", "/points", answer),
			route("OPTIONS", "/query", answer), route("OPTIONS", "/points", answer),
		}
	})
	for _, tc := range []struct {
		allowed string // server.allowed_origins
		request string
		headers string
		want    string // status, Access-Control-Allow-Origin, body if it is not an error
	}{
		// Programs other than browsers.
		{"", "GET /names", "", "200 *"},
		{"", "POST /points", "", "200 *"},
		{"", "GET /kill/1", "", "200 *"},
		{"", "HEAD /kill/1", "", "405"},
		// A page of this server.
		{"", "POST /points", "Origin: http://HOST", "200 http://HOST"},
		{"", "POST /points", "Origin: http://HOST; Sec-Fetch-Site: same-origin", "200 http://HOST"},
		{"", "GET /names", "Sec-Fetch-Site: none", "200 *"},
		// A page of another one.
		{"", "POST /points", "Origin: https://evil.example", "403"},
		{"", "POST /points", "Origin: null", "403"},
		{"", "DELETE /points", "Sec-Fetch-Site: cross-site", "403"},
		{"", "POST /query", "Origin: https://evil.example", "403"},
		{"", "GET /names", "Origin: https://evil.example", "403"},
		{"", "GET /names", "Sec-Fetch-Site: cross-site; Sec-Fetch-Mode: no-cors", "403"},
		{"", "GET /names", "Sec-Fetch-Site: cross-site; Sec-Fetch-Mode: navigate", "200 * read only"},
		{"", "GET /kill/1", "Sec-Fetch-Site: cross-site; Sec-Fetch-Mode: navigate", "403"},
		{"", "GET /kill/1", "Sec-Fetch-Site: same-site", "403"},
		{"", "POST /query", "Sec-Fetch-Site: cross-site; Sec-Fetch-Mode: navigate", "403"}, // a form
		{"", "OPTIONS /points", "Origin: https://evil.example; Access-Control-Request-Method: DELETE", "403"},
		{"", "OPTIONS /query", "Origin: https://evil.example; Access-Control-Request-Method: POST", "403"},
		// KairosDB's choice: any page may read.
		{"*", "POST /query", "Origin: https://evil.example", "200 * read only"},
		{"*", "GET /names", "Origin: https://evil.example; Sec-Fetch-Site: cross-site", "200 * read only"},
		{"*", "POST /points", "Origin: https://evil.example", "403"},
		{"*", "GET /kill/1", "Origin: https://evil.example", "403"},
		{"*", "OPTIONS /query", "Origin: https://evil.example; Access-Control-Request-Method: POST", "200 *"},
		{"*", "OPTIONS /points", "Origin: https://evil.example; Access-Control-Request-Method: DELETE", "403"},
		// One page may do everything.
		{grafana, "POST /points", "Origin: " + grafana, "200 " + grafana},
		{grafana, "DELETE /points", "Origin: " + grafana + "; Sec-Fetch-Site: cross-site", "200 " + grafana},
		{grafana, "OPTIONS /points", "Origin: " + grafana + "; Access-Control-Request-Method: DELETE", "200 " + grafana},
		{grafana, "POST /points", "Origin: http://grafana.example.org", "403"},
		{grafana + ",*", "GET /names", "Origin: https://evil.example", "200 * read only"},
		// A browser that does not say from where: plain http, not on loopback.
		{"", "GET /kill/1", "User-Agent: curl/8.5.0", "200 *"},
		{"", "GET /kill/1", "User-Agent: Java/21; Referer: http://evil.example/", "200 *"},
		{"", "GET /kill/1", "User-Agent: Mozilla/5.0 (X11) Firefox/144.0", "403"},
		{"", "HEAD /kill/1", "User-Agent: Mozilla/5.0", "403"},
		{"", "GET /kill/1", "User-Agent: Mozilla/5.0; Referer: http://evil.example/", "403"},
		{"", "GET /kill/1", "User-Agent: Mozilla/5.0; Referer: http://evil.example/HOST", "403"},
		{"*", "GET /kill/1", "User-Agent: Mozilla/5.0; Referer: http://evil.example/", "403"},
		{"", "GET /kill/1", "User-Agent: Mozilla/5.0; Referer: http://HOST/page", "200 *"},
		{"", "GET /kill/1", "User-Agent: Mozilla/5.0; Sec-Fetch-Site: same-origin", "200 *"},
		{"", "GET /kill/1", "User-Agent: Mozilla/5.0; Sec-Fetch-Site: none", "200 *"},
		{"", "GET /kill/1", "User-Agent: Mozilla/5.0; Origin: http://HOST", "200 http://HOST"},
		{grafana, "GET /kill/1", "User-Agent: Mozilla/5.0; Referer: " + grafana + "/d/1", "200 *"},
		{"", "GET /names", "User-Agent: Mozilla/5.0; Referer: http://evil.example/", "200 *"},
		{"", "POST /points", "User-Agent: Mozilla/5.0 (Windows NT) WindowsPowerShell/5.1", "200 *"},
		{"", "DELETE /points", "User-Agent: Mozilla/5.0", "200 *"},
		// A name that somebody else has pointed to this address.
		{"", "GET /names", "Host: evil.example", "403"},
		{"*", "GET /names", "Host: evil.example:8080", "403"},
		{"", "POST /points", "Host: evil.example; Origin: http://evil.example; Sec-Fetch-Site: same-origin", "403"},
		{"", "GET /names", "Host: varve.localhost:8080", "200 *"},
		{"", "GET /names", "Host: [::1]:8080", "200 *"},
		{"", "GET /names", "Host: 192.0.2.7", "200 *"},
		{grafana, "GET /names", "Host: grafana.example.org", "200 *"},
	} {
		list, err := newOrigins(split(tc.allowed))
		if err != nil {
			t.Fatal(err)
		}
		s.Server.origins.Store(list)
		addr := s.Addr("http")
		method, path, _ := strings.Cut(tc.request, " ")
		request, err := http.NewRequest(method, "http://"+addr+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, header := range strings.Split(tc.headers, "; ") {
			name, value, _ := strings.Cut(strings.ReplaceAll(header, "HOST", addr), ": ")
			if name == "Host" {
				request.Host = value
			} else if name != "" {
				request.Header.Set(name, value)
			}
		}
		served.Store(false)
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if ok := response.StatusCode == 200; served.Load() != ok {
			t.Errorf("%s with %s: %s, but the handler was called: %t", tc.request, tc.headers, response.Status, !ok)
		}
		got := strings.Fields(response.Status)[0] + " " + response.Header.Get("Access-Control-Allow-Origin")
		if response.StatusCode == 200 {
			got += " " + string(body)
		} else if response.StatusCode == 403 && method != "HEAD" && !strings.Contains(string(body), "server.allowed_origins") {
			t.Errorf("%s with %s: %s does not say what to do", tc.request, tc.headers, body)
		}
		if want := strings.ReplaceAll(tc.want, "HOST", addr); strings.TrimSpace(got) != want {
			t.Errorf("allowed %q: %s with %s: %q, want %q", tc.allowed, tc.request, tc.headers, got, want)
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func split(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

func TestOriginsAreValidated(t *testing.T) {
	for _, bad := range []string{"grafana.example.org", "https://a/b", "*.example.org", ""} {
		c := DefaultConfig()
		c.AllowedOrigins = []string{bad}
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "allowed_origins") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
