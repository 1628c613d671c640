package kairos

import (
	"bufio"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A faultyRequest is a line of testdata/faults/requests.jsonl.
type faultyRequest struct {
	Method, Path, Body string
	Headers            map[string]string
	Status             int
	Answer             json.RawMessage
	Ours               *struct {
		Status int
		Answer json.RawMessage
	}
}

var (
	zoneList = regexp.MustCompile(`must be one of \[Africa[^\]]*\]`)
	uuid     = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
)

// otherStatus are the requests whose status differs from KairosDB's, other than 400 for
// 500.
var otherStatus = []string{
	`{"name":"m","ttl":-1,"timestamp":1,"value":1,"tags":{"a":"b"}}`,   // taken there
	`{"start_absolute":99999999999999999999,"metrics":[{"name":"m"}]}`, // the low bits there
	`{"start_absolute":1,"metrics":[{"name":"m","exclude_tags":null}]}`,
	`{"start_absolute":1,"metrics":[{"name":"m","group_by":[{"name":"tag","tags":[5]}]}]}`,
	`{"start_absolute":1,"metrics":[{"name":"m","group_by":[{"name":"tag","tags":[null]}]}]}`, // case 213
	`{"start_absolute":1,"metrics":[{"name":"m","aggregators":[{"name":"save_as","metric_name":"x","tags":{"a":{}}}]}]}`,
	"/api/v1/metadata", // 405 there, 404 here
}

// Every malformed request is answered as KairosDB answers it, or as recorded.
func TestFaultyRequests(t *testing.T) {
	f, err := os.Open("testdata/faults/requests.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := startServer(t)
	n := 0
	for lines := bufio.NewScanner(f); lines.Scan(); n++ {
		var r faultyRequest
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		status, want := r.Status, r.Answer
		if r.Ours != nil {
			status, want = r.Ours.Status, r.Ours.Answer
		}
		if status != r.Status && !(status == 400 && r.Status == 500) && !slices.Contains(otherStatus, r.Body) && !slices.Contains(otherStatus, r.Path) {
			t.Errorf("%s %s %s: status %d, KairosDB's is %d", r.Method, r.Path, r.Body, status, r.Status)
		}
		var headers []string
		for name, value := range r.Headers {
			headers = append(headers, name, value)
		}
		resp, body := s.do(t, r.Method, r.Path, r.Body, headers...)
		body = zoneList.ReplaceAllString(strings.TrimSpace(body), "must be one of [...]")
		body = uuid.ReplaceAllString(body, "<id>")
		if resp.StatusCode != status || status >= 400 && !sameAnswer(t, body, want) {
			t.Errorf("%s %s %s\n got %d %.400s\nwant %d %.400s", r.Method, r.Path, r.Body, resp.StatusCode, body, status, want)
		}
	}
	if n < 300 {
		t.Errorf("%d requests", n)
	}
}

// sameAnswer compares answers; faults come in any order.
func sameAnswer(t *testing.T, body string, want json.RawMessage) bool {
	var text string
	if json.Unmarshal(want, &text) == nil {
		return text == "" && !strings.HasPrefix(body, "{") || text == body
	}
	g, err := decodeJSON([]byte(body))
	if err != nil {
		return false
	}
	w, err := decodeJSON(want)
	if err != nil {
		t.Fatal(err)
	}
	return comparer{unordered: []string{"errors"}}.compare("", "", dropEmpty(g), dropEmpty(w)) == nil
}
