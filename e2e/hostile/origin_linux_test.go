package hostile

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// A page of another origin that a browser on this machine has open can neither
// write, delete nor run anything, and a name that an attacker points at loopback
// opens nothing either.
func TestForeignOrigins(t *testing.T) {
	w := guard(t)
	w.wide()
	point := `[{"name":"foreign","tags":{"a":"b"},"timestamp":1700000000000,"value":1}]`
	save := url.QueryEscape(`{"start_absolute":0,"metrics":[{"name":"wide","limit":1,"aggregators":[{"name":"save_as","metric_name":"foreign.saved"}]}]}`)
	requests := []struct{ method, path, body string }{
		{"POST", "/api/v1/datapoints", point},
		{"POST", "/api/put", `{"metric":"foreign","timestamp":1700000000,"value":1,"tags":{"a":"b"}}`},
		{"POST", "/api/v1/datapoints/delete", `{"start_absolute":0,"metrics":[{"name":"wide"}]}`},
		{"DELETE", "/api/v1/metric/wide", ""},
		{"POST", "/api/v1/import", "foreign"},
		{"POST", "/api/v1/metadata/s/k/n", "v"},
		{"POST", "/api/v1/rollups", "{}"},
		{"POST", "/api/v1/datapoints/query", `{"start_absolute":0,"metrics":[{"name":"wide","aggregators":[{"name":"save_as","metric_name":"foreign.saved"}]}]}`},
		{"GET", "/api/v1/datapoints/query?query=" + save, ""},
		{"POST", "/admin/compact", ""}, {"POST", "/admin/backup", `{"dir":"x"}`}, {"POST", "/admin/check", ""}, {"POST", "/admin/reload", ""},
	}
	headers := []map[string]string{
		{"Origin": "http://evil.example", "Content-Type": "text/plain"},
		{"Origin": "null", "Content-Type": "text/plain"},
		{"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"},
		{"Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain"},
		{"Origin": "http://evil.example:80", "Host": "evil.example:80", "Sec-Fetch-Site": "same-origin"}, // DNS rebinding
		{"Host": "evil.example"},
	}
	for _, r := range requests {
		for _, h := range headers {
			status, _ := w.browse(t, r.method, r.path, r.body, h)
			if status != http.StatusForbidden && status != http.StatusMisdirectedRequest {
				t.Errorf("%s %.60s with %v: status %d, want 403", r.method, r.path, h, status)
			}
		}
	}
	for _, h := range headers[:2] {
		for _, method := range []string{"POST", "DELETE", "PUT"} {
			_, answer := w.browse(t, "OPTIONS", "/api/v1/metric/wide", "", map[string]string{"Origin": h["Origin"], "Access-Control-Request-Method": method})
			if allowed := answer.Get("Access-Control-Allow-Origin"); allowed != "" {
				t.Errorf("the preflight of a %s from %s is allowed for %q", method, h["Origin"], allowed)
			}
		}
		_, answer := w.browse(t, "GET", "/api/v1/metricnames", "", h)
		if allowed := answer.Get("Access-Control-Allow-Origin"); allowed != "" {
			t.Errorf("a page of %s may read names: %q", h["Origin"], allowed)
		}
	}
	for _, method := range []string{"HEAD", "GET"} { // neither changes anything, without an origin either
		w.browse(t, method, "/api/v1/datapoints/query?query="+save, "", nil)
	}
	for _, path := range []string{"/api/v1/admin/killquery/1", "/api/v1/rollups/backfill/x?startTime=2023-11-14-22-00-00-000"} { // an image, by plain http
		for _, referer := range []string{"", "http://evil.example/"} {
			status, _ := w.browse(t, "GET", path, "", map[string]string{"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)", "Referer": referer})
			if status != http.StatusForbidden {
				t.Errorf("GET %s of a browser from %q: status %d, want 403", path, referer, status)
			}
		}
	}
	lines := "x=\r\nput foreign 1700000000 1 a=b\r\n"
	for _, request := range []string{"POST / HTTP/1.1", "GET /x HTTP/1.1", "PRI * HTTP/2.0"} {
		c, err := connect(t.Context(), w.Telnet)
		if err != nil {
			t.Fatal(err)
		}
		c.say(fmt.Sprintf("%s\r\nHost: %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", request, w.Telnet, len(lines), lines))
		if err := c.cut(5 * time.Second); err != nil {
			t.Errorf("%s to the telnet port: %v", request, err)
		}
		c.Close()
	}
	for _, unwanted := range []string{"foreign"} {
		if names, err := w.MetricNames(t.Context(), unwanted); err != nil || len(names) > 0 {
			t.Errorf("there are %q now: %v", names, err)
		}
	}
	results, err := w.Query(t.Context(), wideQuestion)
	if err != nil || len(results) != 1 || len(results[0].Values) != 400_000 {
		t.Errorf("the points that were to be deleted are not all there: %d results, %v", len(results), err)
	}
	// Programs other than browsers and the server's own pages are served.
	for _, h := range []map[string]string{nil, {"Origin": "http://" + w.HTTP}, {"Sec-Fetch-Site": "same-origin", "Origin": "http://" + w.HTTP}, {"Host": "localhost"}} {
		if status, _ := w.browse(t, "POST", "/api/v1/datapoints", strings.Replace(point, "foreign", "own", 1), h); status != http.StatusNoContent {
			t.Errorf("a write with %v: status %d, want 204", h, status)
		}
	}
}

// browse sends one request with headers and returns status and headers of the
// answer.
func (w *ward) browse(t *testing.T, method, path, body string, headers map[string]string) (int, http.Header) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+w.HTTP+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range headers {
		if name == "Host" {
			request.Host = value
			continue
		}
		request.Header.Set(name, value)
	}
	response, err := w.Client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	io.Copy(io.Discard, response.Body)
	return response.StatusCode, response.Header
}
