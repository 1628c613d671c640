package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"varve/e2e/process"
)

const packageLog = "/var/log/dpkg.log"

// logLines returns the lines of this machine's package log, at most some thousands of the
// newest. A machine without one gets lines as dpkg writes them.
func logLines(t *testing.T) []string {
	t.Helper()
	const most = 5000
	var list []string
	text, err := os.ReadFile(packageLog)
	for line := range strings.Lines(string(text)) {
		if _, ok := logTime(line); ok {
			list = append(list, strings.TrimRight(line, "\n"))
		}
	}
	if err != nil || len(list) < 10 {
		t.Logf("%s: %d lines, %v; the lines are made up", packageLog, len(list), err)
		at := time.Date(2024, 3, 10, 12, 0, 0, 0, time.UTC)
		for i := range 1000 {
			list = append(list, fmt.Sprintf("%s status installed lib%d:amd64 1.%d-1", at.Add(time.Duration(i/7)*time.Second).Format(time.DateTime), i%50, i))
		}
	}
	list = list[max(0, len(list)-most):]
	slices.SortStableFunc(list, func(a, b string) int { // the clock may have been set back
		return strings.Compare(a[:len(time.DateTime)], b[:len(time.DateTime)])
	})
	return list
}

// logTime returns the time that a line of dpkg's log begins with, in ms.
func logTime(line string) (int64, bool) {
	if len(line) < len(time.DateTime) {
		return 0, false
	}
	at, err := time.Parse(time.DateTime, line[:len(time.DateTime)])
	return at.UnixMilli(), err == nil
}

// This machine's package log as a timeline: it is appended in lines, followed meanwhile, and
// read back newest first, also after kill -9.
func TestPackageLogAsTimeline(t *testing.T) {
	process.SkipShort(t)
	lines := logLines(t)
	dir := t.TempDir()
	s := process.Start(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	follow, err := http.NewRequestWithContext(ctx, "GET", "http://"+s.HTTP+"/api/v1/timelines/dpkg/tail", nil)
	if err != nil {
		t.Fatal(err)
	}
	tail, err := http.DefaultClient.Do(follow)
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Body.Close()
	arrived := bufio.NewScanner(tail.Body)
	arrived.Scan() // the answer has begun

	var body bytes.Buffer
	for i, line := range lines {
		at, _ := logTime(line)
		data, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&body, `{"time":%d,"id":"%06d","data":%s}`+"\n", at, i, data)
	}
	request, err := http.NewRequestWithContext(ctx, "POST", "http://"+s.HTTP+"/api/v1/timelines/dpkg/events", &body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-ndjson")
	status, answer, err := s.Send(request)
	if err != nil || status != 200 || !bytes.HasPrefix(answer, fmt.Appendf(nil, `{"accepted":%d,"rejected":[],`, len(lines))) {
		t.Fatalf("%v, %d %.300s", err, status, answer)
	}
	for i := 0; i < len(lines); {
		if !arrived.Scan() {
			t.Fatalf("%d of %d lines have arrived: %v", i, len(lines), arrived.Err())
		}
		if text, ok := strings.CutPrefix(arrived.Text(), "data: "); ok {
			if got := dataOf(t, []byte(text)); got != lines[i] {
				t.Fatalf("line %d arrives as %q, want %q", i, got, lines[i])
			}
			i++
		}
	}
	s.Kill()
	s = process.Start(t, dir)
	left := len(lines)
	for cursor := ""; left > 0; {
		text, err := s.Want(ctx, 200, "GET", "/api/v1/timelines/dpkg/events?limit=700"+cursor, "")
		if err != nil {
			t.Fatal(err)
		}
		var page struct {
			Events []json.RawMessage
			Cursor string
			End    bool
		}
		if err := json.Unmarshal(text, &page); err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			if left--; left < 0 || dataOf(t, e) != lines[left] {
				t.Fatalf("line %d is read as %s", left, e)
			}
		}
		if page.End {
			break
		}
		cursor = "&cursor=" + page.Cursor
	}
	if left != 0 {
		t.Errorf("%d lines are not read", left)
	}
}

func dataOf(t *testing.T, event []byte) string {
	t.Helper()
	var e struct{ Data string }
	if err := json.Unmarshal(event, &e); err != nil {
		t.Fatalf("%v in %s", err, event)
	}
	return e.Data
}
