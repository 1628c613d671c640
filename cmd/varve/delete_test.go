package main

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// A row that is written and deleted from again and again stays fast to delete
// from and to read, and is right after a restart.
func TestBusyRow(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	const rounds, points = 600, 20
	const base = int64(1700000000000)
	var took [3][]time.Duration // by a delete and a query, by third
	for i := range rounds {
		var text strings.Builder
		for k := range points {
			fmt.Fprintf(&text, "[%d,%d],", base+int64(i*points+k)*1000, k)
		}
		if status, body := p.do("POST", "/api/v1/datapoints", `{"name":"busy","tags":{"a":"b"},"datapoints":[`+strings.TrimSuffix(text.String(), ",")+`]}`); status != 204 {
			t.Fatal(status, body)
		}
		began := time.Now()
		from := base + int64(i*points)*1000 // all but the last point of the round
		status, body := p.do("POST", "/api/v1/datapoints/delete", fmt.Sprintf(`{"start_absolute":%d,"end_absolute":%d,"metrics":[{"name":"busy"}]}`, from, from+(points-2)*1000))
		if status != 204 {
			t.Fatal(status, body)
		}
		_, body = p.do("POST", "/api/v1/datapoints/query", fmt.Sprintf(`{"start_absolute":%d,"metrics":[{"name":"busy"}]}`, base))
		took[i*3/rounds] = append(took[i*3/rounds], time.Since(began))
		if !strings.Contains(body, fmt.Sprintf(`"sample_size":%d,`, i+1)) {
			t.Fatalf("after %d rounds: %.200s", i+1, body)
		}
	}
	// The quickest of each third, which a busy machine does not make much longer.
	first, middle, last := slices.Min(took[0]), slices.Min(took[1]), slices.Min(took[2])
	t.Logf("a delete and a query took at least %v, %v, %v in each third", first, middle, last)
	if last > 4*first+20*time.Millisecond {
		t.Errorf("deletes become slow: %v in the first third, %v in the last", first, last)
	}
	p.kill()
	p = start(t, dir)
	if _, body := p.do("POST", "/api/v1/datapoints/query", `{"start_absolute":0,"metrics":[{"name":"busy"}]}`); !strings.Contains(body, fmt.Sprintf(`"sample_size":%d,`, rounds)) {
		t.Errorf("after a restart: %.200s", body)
	}
	if status, body := p.do("DELETE", "/api/v1/metric/busy", ""); status != 204 {
		t.Fatal(status, body)
	}
	if _, body := p.do("GET", "/api/v1/metricnames", ""); strings.Contains(body, "busy") {
		t.Errorf("names: %s", body)
	}
	p.stop(os.Interrupt)
}

// A text in the metadata comes with the time when it was set, as long as it is
// the same.
func TestMetadataTimes(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	const path = "/api/v1/metadata/service/key/name"
	p.do("POST", path, "one")
	first := p.header("GET", path, "Last-Modified")
	at, err := time.Parse(time.RFC1123, first)
	if err != nil || time.Since(at) > time.Minute {
		t.Fatalf("%q %v", first, err)
	}
	p.kill()
	p = start(t, dir)
	if got := p.header("GET", path, "Last-Modified"); got != first {
		t.Errorf("after a restart %q, before %q", got, first)
	}
	// The header has whole seconds: it changes once a value is set in a later second.
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		p.do("POST", path, "two")
		if p.header("GET", path, "Last-Modified") != first {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("set again, and still of %s", first)
		}
	}
	p.stop(os.Interrupt)
}

// header returns a header of the answer to a request.
func (p *process) header(method, path, name string) string {
	p.t.Helper()
	request, err := http.NewRequest(method, "http://"+p.http+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	response.Body.Close()
	return response.Header.Get(name)
}
