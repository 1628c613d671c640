package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/audit"
	"varve/internal/auth"
	"varve/internal/httpapi"
	"varve/internal/principal"
)

// The audit log has who deleted, exported and administered, what came of it, and who was
// refused the role admin; it has nobody who only reads or writes points.
func TestAudit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	log, err := audit.Open(path, audit.DefaultConfig(), prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	g := newGate(t, auth.Config{}, auth.Grant{Name: "operator", Rights: principal.Admin}, auth.Grant{Name: "reader", Rights: principal.Read})
	use := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if r.URL.Query().Has("bad") {
			httpapi.WriteErrors(w, http.StatusBadRequest, "bad")
		}
		if r.URL.Query().Has("panic") {
			panic("a test")
		}
	}
	s := start(t, func(o *Options) {
		o.Keeper, o.Front.Audit = g.Keeper, log
		o.Front.Tenants = func(name string) bool { return name == "globex" }
		o.Routes = []httpapi.Route{
			httpapi.On("GET", "/read", httpapi.Read, use),
			httpapi.On("GET", "/export", httpapi.Read, use).OnRecord(),
			httpapi.On("POST", "/write", httpapi.Write, use),
			httpapi.On("POST", "/delete", httpapi.Delete, use),
			httpapi.On("GET", "/look", httpapi.Admin, use),
			httpapi.On("POST", "/change", httpapi.Admin, use),
		}
	})
	for _, test := range []struct{ who, request, body, want string }{
		{"operator", "GET /read", "", ""},
		{"operator", "POST /write", "points", ""},
		{"operator", "GET /look", "", ""},
		{"operator", "GET /export?metric=a", "", `operator token default GET /export /export metric=a  200 `},
		{"operator", "POST /delete", "what", `operator token default POST /delete /delete  what 200 `},
		{"operator", "POST /delete", strings.Repeat("x", 2*recordedBody), "operator token default POST /delete /delete  " + strings.Repeat("x", recordedBody) + " 200 "},
		{"operator", "POST /change?bad", "", `operator token default POST /change /change bad  400 `},
		{"operator", "POST /change?panic", "", `operator token default POST /change /change panic  500 the handler panicked`},
		{"reader", "GET /look", "", `reader token default GET /look /look   403 this needs the role admin; reader has read`},
		{"reader", "POST /change", "", `reader token default POST /change /change   403 this needs the role admin; reader has read`},
		{"operator", "POST /t/globex/change", "", `operator token globex POST /change /t/globex/change   200 `},
		{"reader", "POST /t/globex/change", "", `reader token globex POST /change /t/globex/change   403 this sender may not use the tenant globex`},
		{"nobody", "GET /look", "", ""}, // else anyone could push older events out of the log
		{"many", "GET /look", "", ""},   // of the same address, whose refusals are no longer logged
		{"reader", "GET /look", "", `reader token default GET /look /look   403 this needs the role admin; reader has read`},
		{"reader", "GET /t/globex/look", "", `reader token globex GET /look /t/globex/look   403 this sender may not use the tenant globex`},
	} {
		before, _ := os.ReadFile(path)
		method, target, _ := strings.Cut(test.request, " ")
		r, err := http.NewRequest(method, "http://"+s.Addr("http")+target, strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+g.tokens[test.who])
		for range map[string]int{"many": 100}[test.who] {
			do(t, r)
		}
		do(t, r)
		after, _ := os.ReadFile(path)
		line, got := bufio.NewScanner(bytes.NewReader(after[len(before):])), ""
		line.Buffer(nil, 1<<20)
		for line.Scan() {
			var e audit.Event
			if err := json.Unmarshal(line.Bytes(), &e); err != nil || e.Time.IsZero() || !strings.HasPrefix(e.Remote, "127.0.0.1:") {
				t.Errorf("%s: %v", line.Bytes(), err)
			}
			got += strings.Join([]string{e.Sender, e.By, e.Tenant, e.Action, e.Path, e.Query, e.Body, strconv.Itoa(e.Status), e.Detail}, " ")
		}
		if got != test.want {
			t.Errorf("%s as %s: %q, want %q", test.request, test.who, got, test.want)
		}
	}
}

// An answer that was cut off, since its sender has lost its rights or has gone, is no panic in
// the audit log.
func TestAuditOfCutAnswer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	log, err := audit.Open(path, audit.DefaultConfig(), prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s := start(t, func(o *Options) {
		o.Front.Audit = log
		o.Routes = []httpapi.Route{httpapi.On("GET", "/export", httpapi.Read, func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "half an ans")
			panic(http.ErrAbortHandler)
		}).OnRecord()}
	})
	response, err := http.Get("http://" + s.Addr("http") + "/export")
	if err == nil {
		defer response.Body.Close()
		_, err = io.ReadAll(response.Body)
	}
	if err == nil {
		t.Error("it was taken for a whole answer")
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), `"status":200,"detail":"the answer was cut off"`) {
		t.Errorf("%s %v", text, err)
	}
}

// Browsers take no answer for a page with scripts, whatever it is.
func TestAnswersAreNoPages(t *testing.T) {
	s := start(t, withRoutes(route("GET", "/hello", hello), route("GET", "/empty", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) })))
	for _, path := range []string{"/", "/hello", "/empty", "/nothing", "/api/v1/nothing", "/internal/metrics"} {
		r, _ := http.NewRequest("GET", "http://"+s.Addr("http")+path, nil)
		_, _, header := do(t, r)
		if header.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %v", path, header)
		}
	}
}

// A sender that has filled its share of the audit log is refused before anything is done.
func TestShareOfAudit(t *testing.T) {
	log, err := audit.Open(filepath.Join(t.TempDir(), "audit.log"), audit.Config{MaxBytes: 8 << 10, MaxFiles: 1}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	g := newGate(t, auth.Config{}, auth.Grant{Name: "loud", Rights: principal.Delete}, auth.Grant{Name: "quiet", Rights: principal.Delete})
	var done atomic.Int64
	s := start(t, func(o *Options) {
		o.Keeper, o.Front.Audit = g.Keeper, log
		o.Routes = []httpapi.Route{httpapi.On("POST", "/delete", httpapi.Delete, func(http.ResponseWriter, *http.Request) { done.Add(1) })}
	})
	remove := func(who string) (int, http.Header) {
		r, _ := http.NewRequest("POST", "http://"+s.Addr("http")+"/delete", strings.NewReader(strings.Repeat("x", 500)))
		r.Header.Set("Authorization", "Bearer "+g.tokens[who])
		status, _, header := do(t, r)
		return status, header
	}
	for n := 1; ; n++ {
		status, header := remove("loud")
		if status == http.StatusServiceUnavailable && header.Get("Retry-After") > "1" && done.Load() == int64(n-1) && n > 2 {
			break
		}
		if status != http.StatusOK || n > 20 {
			t.Fatalf("request %d is answered %d, Retry-After %q, %d were done", n, status, header.Get("Retry-After"), done.Load())
		}
	}
	if status, _ := remove("quiet"); status != http.StatusOK {
		t.Errorf("another sender: %d", status)
	}
}
