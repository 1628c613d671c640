package clients

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"varve/e2e/process"
	"varve/internal/server/tlstest"
)

// TestKairosJavaClientWithToken: the client sends the token in its URL after a 401, and keeps
// its two connections. With a wrong token it gets an error, and keeps them too.
func TestKairosJavaClientWithToken(t *testing.T) {
	process.SkipShort(t)
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens.json")
	token := process.Token(t, file, "java", "read,write")
	s := process.Start(t, t.TempDir(), "--auth-enabled=true", "--auth-token-file="+file)
	stranger := startShell(t, "http://java:wrong@"+s.HTTP)
	for range 3 { // more often than it has connections
		if got := stranger.try("names", `{}`); got.Error == nil {
			t.Fatalf("a stranger is answered %s", got.OK)
		}
	}
	j := startShell(t, "http://java:"+token+"@"+s.HTTP)
	for range 3 {
		j.call("push", pushed)
	}
	if got, want := j.call("names", `{}`), `["j.m","j.s"]`; !sameJSON(t, got, want) {
		t.Errorf("names are %s, want %s", got, want)
	}
	askByJava(t, j)
	if got := j.try("deleteMetric", `"j.m"`); got.Error == nil || got.Status != http.StatusForbidden {
		t.Errorf("a token without the role delete: %d %s", got.Status, got.OK)
	}
	if got, want := j.call("names", `{}`), `["j.m","j.s","j.saved"]`; !sameJSON(t, got, want) {
		t.Errorf("at the end names are %s, want %s", got, want)
	}
}

// refusals fails the test unless a server has refused the wanted numbers of senders, by
// stream and reason as in the labels of a metric. A client may get its refusal before the
// server counts it.
func refusals(t *testing.T, s *process.Server, want map[string]float64) {
	t.Helper()
	for counter, n := range want {
		var got float64
		err := process.Until(t.Context(), fmt.Sprintf("%s to be %v", counter, n), func() (bool, error) {
			m, err := s.Metrics(t.Context())
			got = m[counter]
			return got >= n, err
		})
		if err != nil || got != n {
			t.Errorf("%s is %v, want %v: %v", counter, got, n, err)
		}
	}
}

// TestTelegrafWithToken: Telegraf's output for OpenTSDB sends the token in its URL, and all
// points are stored. Without a token, or with a wrong one, each request is answered 401,
// which Telegraf logs.
func TestTelegrafWithToken(t *testing.T) {
	process.SkipShort(t)
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join(root, "internal/ingest/opentsdb/testdata/clients/telegraf-opentsdb-http.http"))
	if err != nil {
		t.Fatal(err)
	}
	requests, want := readRequests(t, raw), contents{}
	for _, r := range requests {
		want.wanted(t, r.body, true)
	}
	s := process.StartSecured(t, t.TempDir(), "", "--server-tls-streams=carbon")
	token := process.Token(t, filepath.Join(s.Files, "tokens.json"), "telegraf", "write")
	if answer, err := s.Want(t.Context(), http.StatusOK, "POST", "/admin/reload", ""); err != nil {
		t.Fatalf("%v %s", err, answer)
	}
	// with is the recording as Go's HTTP client sends it with user and password in the URL.
	with := func(token string) []byte {
		const line = "POST /api/put HTTP/1.1\r\n"
		shown := line + "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("telegraf:"+token)) + "\r\n"
		return bytes.ReplaceAll(raw, []byte(line), []byte(shown))
	}
	for _, sent := range [][]byte{raw, with("wrong")} {
		w := dial(t, s.HTTP)
		w.send(string(sent))
		for range requests {
			a := w.answer("POST")
			if a.StatusCode != http.StatusUnauthorized || !strings.Contains(a.body, "token") || a.Header.Get("Www-Authenticate") == "" || a.Close {
				t.Errorf("without a good token: %d %v %s", a.StatusCode, a.Header, a.body)
			}
		}
	}
	compare(t, s.Server, contents{})
	n := float64(len(requests))
	refusals(t, s.Server, map[string]float64{
		`varve_auth_refused_total{reason="no_credential",stream="http"}`: n,
		`varve_auth_refused_total{reason="unknown_token",stream="http"}`: n,
	})
	replay(t, s.Server, with(token), 1428, requests)
	compare(t, s.Server, want)
	s.Stop(t)
}

// TestTelegrafWithCertificate: Telegraf's output for Graphite is identified by its certificate
// or its address. If no rule applies to it, its connection is closed, which it notices at the
// next flush. The server never writes to it, because Telegraf would treat that as an error.
func TestTelegrafWithCertificate(t *testing.T) {
	process.SkipShort(t)
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join(root, "internal/ingest/carbon/testdata/recordings/telegraf-graphite.tcp"))
	if err != nil {
		t.Fatal(err)
	}
	want := contents{}
	for line := range strings.Lines(string(raw)) {
		words := strings.Fields(line)
		seconds, err := strconv.ParseInt(words[2], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		want.add(words[0], nil, seconds*1000, words[1])
	}
	send := func(s *process.Secured, config *tls.Config) {
		t.Helper()
		conn, err := net.DialTimeout("tcp", s.Carbon(t, "lines"), wireWithin)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(wireWithin))
		end := conn.(interface{ CloseWrite() error })
		if config != nil {
			config.ServerName = "localhost"
			secure := tls.Client(conn, config)
			conn, end = secure, secure
		}
		for part := range slices.Chunk(raw, 500) {
			if _, err := conn.Write(part); err != nil {
				break // it is refused
			}
		}
		_ = end.CloseWrite()
		if answer, _ := io.ReadAll(conn); len(answer) > 0 {
			t.Errorf("the server wrote %q", answer)
		}
	}

	s := process.StartSecured(t, t.TempDir(), "cn=telegraf stream=carbon role=write", "--server-tls-streams=carbon")
	foreign := tlstest.NewAuthority(t).Client("telegraf")
	foreign.RootCAs = s.CA.Client("").RootCAs
	for _, config := range []*tls.Config{nil, s.CA.Client(""), s.CA.Client("stranger"), foreign} {
		send(s, config)
	}
	compare(t, s.Server, contents{})
	refusals(t, s.Server, map[string]float64{
		`varve_server_tls_handshakes_failed_total{reason="not_tls",stream="carbon"}`:     1,
		`varve_auth_refused_total{reason="no_credential",stream="carbon"}`:               1,
		`varve_auth_refused_total{reason="no_rule",stream="carbon"}`:                     1,
		`varve_server_tls_handshakes_failed_total{reason="certificate",stream="carbon"}`: 1,
	})
	send(s, s.CA.Client("telegraf"))
	compare(t, s.Server, want)
	s.Stop(t)

	s = process.StartSecured(t, t.TempDir(), "address=192.0.2.1 stream=carbon role=write", "--server-tls-streams=http")
	send(s, nil)
	compare(t, s.Server, contents{})
	refusals(t, s.Server, map[string]float64{`varve_auth_refused_total{reason="no_credential",stream="carbon"}`: 1})
	s.Stop(t)
	s = process.StartSecured(t, t.TempDir(), "address=127.0.0.1 stream=carbon role=write", "--server-tls-streams=http")
	send(s, nil)
	compare(t, s.Server, want)
	s.Stop(t)
}
