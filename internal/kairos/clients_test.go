package kairos

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// testdata/clients holds what real clients sent over keep-alive connections:
// Grafana's KairosDB plug-in, the KairosDB Java client, python-kairosdb. Each
// file goes byte for byte into one socket, and every request must be answered
// in its turn; bodies of GET and DELETE must not be taken for requests.
func TestRecordedClients(t *testing.T) {
	files, err := filepath.Glob("testdata/clients/*.http")
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := startServer(t)
			conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(2 * time.Minute))
			if _, err := conn.Write(raw); err != nil {
				t.Fatal(err)
			}
			requests, answers := bufio.NewReader(bytes.NewReader(raw)), bufio.NewReader(conn)
			for {
				req, err := http.ReadRequest(requests)
				if errors.Is(err, io.EOF) {
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(req.Body)
				if err != nil {
					t.Fatal(err)
				}
				checkAnswer(t, req, body, answers)
			}
		})
	}
}

// elsewhere are the paths that other packages serve.
var elsewhere = []string{"/api/v1/health/", "/api/v1/rollups/"}

func checkAnswer(t *testing.T, req *http.Request, body []byte, answers *bufio.Reader) {
	t.Helper()
	resp, err := http.ReadResponse(answers, req)
	if err != nil {
		t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	answer, err := readAnswer(resp)
	if err != nil {
		t.Fatal(err)
	}
	for _, prefix := range elsewhere {
		if strings.HasPrefix(req.URL.Path, prefix) {
			return
		}
	}
	switch want := wantedStatus(req, body); {
	case resp.StatusCode != want:
		t.Errorf("%s %s %s: status %d, want %d: %s", req.Method, req.URL, body, resp.StatusCode, want, answer)
	case want == http.StatusOK:
		// The Java client believes no other type.
		if got := resp.Header.Get("Content-Type"); !strings.HasPrefix(got, "application/json") {
			t.Errorf("%s: content type %q", req.URL, got)
		}
		checkQueries(t, req, body, answer)
	case want == http.StatusBadRequest:
		if got := resp.Header.Get("Content-Type"); got != "application/json" {
			t.Errorf("%s: content type %q", req.URL, got)
		}
	}
}

func wantedStatus(req *http.Request, body []byte) int {
	switch {
	case bytes.Contains(body, []byte(`"name":"rate","align_sampling"`)): // KairosDB refuses it too
		return http.StatusBadRequest
	case req.URL.Path == "/api/v1/datapoints", req.URL.Path == "/api/v1/datapoints/delete", req.Method == http.MethodDelete:
		return http.StatusNoContent
	}
	return http.StatusOK
}

// checkQueries: Grafana reads answers by position, so there are as many as
// metrics.
func checkQueries(t *testing.T, req *http.Request, body, answer []byte) {
	t.Helper()
	if !strings.HasPrefix(req.URL.Path, "/api/v1/datapoints/query") {
		return
	}
	var q struct{ Metrics []json.RawMessage }
	var a struct{ Queries []json.RawMessage }
	if err := json.Unmarshal(body, &q); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		t.Fatalf("%s: %v", answer, err)
	}
	if len(q.Metrics) != len(a.Queries) {
		t.Errorf("%d metrics, %d answers", len(q.Metrics), len(a.Queries))
	}
}
