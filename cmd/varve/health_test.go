package main

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/httpapi"
)

// TestHealth: a running server is healthy, whether flags, the environment or a URL name it. A port
// without a listener is a fault, and the hint names the flag that was used.
func TestHealth(t *testing.T) {
	p := start(t, t.TempDir())
	wantRun(t, 0, []string{"is healthy"}, "health", "--http-addr", p.http)
	wantRun(t, 0, []string{"is healthy"}, "health", "--url", "http://"+p.http+"/", "--wait")
	if status, out, errs := once(t, []string{"VARVE_SERVER_HTTP_ADDR=" + p.http}, "health"); status != 0 || !strings.Contains(out, p.http) {
		t.Errorf("by the environment: %d %s%s", status, out, errs)
	}
	nobody := cqltest.ClosedPort(t)
	wantRun(t, 1, []string{"ask http://" + nobody, "connection refused: no server listens there; use --http-addr for another server"}, "health", "--http-addr", nobody)
	wantRun(t, 1, []string{"ask http://" + nobody, "connection refused: no server listens there; use --url for another server"}, "health", "--url", "http://"+nobody)
	for _, url := range []string{"127.0.0.1:8080", "ftp://127.0.0.1", "http://", "http://a/b"} {
		wantRun(t, 2, []string{"want http://host:port"}, "health", "--url", url)
	}
	wantRun(t, 2, []string{"give one of them"}, "health", "--url", "http://a", "--http-addr", "a:1")
	wantRun(t, 2, []string{"server.http_addr"}, "health", "--http-addr", "nonsense")
}

// TestHealthOverTLS: a server of these settings is asked by its scheme, whatever names its
// certificate has; one that a URL names is verified.
func TestHealthOverTLS(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer server.Close()
	addr := strings.TrimPrefix(server.URL, "https://")
	wantRun(t, 0, []string{"https://" + addr + " is healthy"}, "health", "--http-addr", addr, "--server-tls-cert-file=cert.pem", "--server-tls-key-file=key.pem")
	wantRun(t, 1, []string{"unknown authority; the variable VARVE_CA_FILE must name a file"}, "health", "--url", server.URL)
	authority := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(authority, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if status, out, errs := once(t, []string{"VARVE_CA_FILE=" + authority}, "health", "--url", server.URL); status != 0 || !strings.Contains(out, "is healthy") {
		t.Errorf("with the authority: %d %s%s", status, out, errs)
	}
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httpapi.WriteErrors(w, http.StatusBadRequest, "this port speaks TLS; use https://")
	}))
	defer plain.Close()
	want := "ask " + plain.URL + " for its health: this port speaks TLS; use --url https" + strings.TrimPrefix(plain.URL, "http") + ", or the settings of the server, for example its --config\n"
	wantRun(t, 1, []string{want}, "health", "--url", plain.URL)
	wantRun(t, 1, []string{want}, "health", "--url", plain.URL, "--wait") // waiting would not help
	wantRun(t, 1, []string{want}, "health", "--http-addr", strings.TrimPrefix(plain.URL, "http://"))
}

// TestHealthOfPart: what has failed in a part of the data does not make the server unwell,
// and is told.
func TestHealthOfPart(t *testing.T) {
	const backlog = "Datastore-Cassandra-Backlog: Cassandra does not accept all samples; 123456789 wait for it in 12345678901 bytes on disk, " +
		"since 2026-11-30T00:00:00Z, when this server started; 123456 more each second, and spool.max_bytes is reached in about 11h30m"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/health/status" {
			w.Write([]byte(`["Datastore-Query: OK","Datastore-Cassandra: FAIL","` + backlog + `"]`))
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer server.Close()
	wantRun(t, 0, []string{server.URL + " is healthy; Datastore-Cassandra: FAIL; " + backlog + "\n"}, "health", "--url", server.URL)
}

// TestHealthWaits: a server that is still opening its store is waited for, and what it
// says of itself is told.
func TestHealthWaits(t *testing.T) {
	var checks atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/api/v1/health/status":
			w.Write([]byte(`["Datastore-Query: OK","Datastore-Open: starting, 40 %"]`))
		case checks.Add(1) < 4:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	defer server.Close()
	wantRun(t, 1, []string{"503", "is not healthy", "; Datastore-Open: starting, 40 %"}, "health", "--url", server.URL)
	wantRun(t, 0, []string{"is healthy"}, "health", "--url", server.URL, "--wait")
	if n := checks.Load(); n != 4 {
		t.Errorf("asked %d times, want 1 and 3", n)
	}
}
