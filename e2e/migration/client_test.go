package migration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/e2e/process"
)

// A client speaks KairosDB's API to a server.
type client struct{ name, url string }

func (c client) do(ctx context.Context, method, path, body string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, process.AnswerWithin)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s %s: %s: %.300s", c.name, method, path, response.Status, answer)
	}
	return answer, err
}

func (c client) must(t *testing.T, method, path, body string) []byte {
	t.Helper()
	answer, err := c.do(t.Context(), method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// A sent metric is points of one series.
type sent struct {
	Name   string            `json:"name"`
	Tags   map[string]string `json:"tags"`
	Points [][2]any          `json:"datapoints"`
}

func (c client) put(ctx context.Context, list ...sent) error {
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	_, err = c.do(ctx, http.MethodPost, "/api/v1/datapoints", string(text))
	return err
}

// results are the stored results of a roll-up, by host.
func (c client) results(t *testing.T, metric string) map[string][][2]int64 {
	t.Helper()
	answer := c.must(t, http.MethodPost, "/api/v1/datapoints/query",
		fmt.Sprintf(`{"start_absolute":0,"metrics":[{"name":%q,"group_by":[{"name":"tag","tags":["host"]}]}]}`, metric))
	var parsed struct {
		Queries []struct {
			Results []struct {
				GroupBy []struct {
					Name  string
					Group map[string]string
				} `json:"group_by"`
				Values [][2]int64
			}
		}
	}
	if err := json.Unmarshal(answer, &parsed); err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	all := map[string][][2]int64{}
	for _, r := range parsed.Queries[0].Results {
		for _, g := range r.GroupBy {
			if g.Name == "tag" {
				all[g.Group["host"]] = append(all[g.Group["host"]], r.Values...)
			}
		}
	}
	return all
}

// A stream writes a point of each host a few times a second, to a server that can be
// changed, and records the sent points.
type stream struct {
	mu   sync.Mutex
	to   client
	sums map[string]map[int64]int64 // by host and bucket
	err  error
	stop func()
}

const (
	source   = "live"
	bucketMS = 20_000
)

var hosts = []string{"a", "b"}

func begin(t *testing.T, to client) *stream {
	s := &stream{to: to, sums: map[string]map[int64]int64{}}
	for _, h := range hosts {
		s.sums[h] = map[int64]int64{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	s.stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	t.Cleanup(s.stop)
	done.Go(func() {
		ticker := time.NewTicker(300 * time.Millisecond)
		defer ticker.Stop()
		for value := int64(1); ctx.Err() == nil; value++ {
			select {
			case now := <-ticker.C:
				s.send(now.UnixMilli(), value)
			case <-ctx.Done():
			}
		}
	})
	return s
}

// send writes a point of each host. A point that is on the boundary of two buckets
// counts twice in KairosDB, so there is none.
func (s *stream) send(ms, value int64) {
	if ms%bucketMS == 0 {
		ms++
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, h := range hosts {
		v := value + int64(i)*1000
		if err := s.to.put(context.Background(), sent{source, map[string]string{"host": h}, [][2]any{{ms, v}}}); err != nil {
			s.err = err
			continue
		}
		s.sums[h][ms/bucketMS*bucketMS] += v
	}
}

// turnTo sends all later points to another server, and returns the time of the
// change.
func (s *stream) turnTo(to client) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = to
	return time.Now().UnixMilli()
}

// failed returns why a point could not be written.
func (s *stream) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// checkResults compares the stored results of a roll-up with the sent points: each
// bucket before untilMS must have one result, and from exactMS on the right one.
func (s *stream) checkResults(t *testing.T, c client, metric string, exactMS, untilMS int64) (buckets int, fault string) {
	t.Helper()
	stored := c.results(t, metric)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range hosts {
		by := map[int64][]int64{}
		for _, p := range stored[h] {
			by[p[0]/bucketMS*bucketMS] = append(by[p[0]/bucketMS*bucketMS], p[1])
		}
		for b, want := range s.sums[h] {
			if b+bucketMS > untilMS {
				continue
			}
			buckets++
			switch got := by[b]; {
			case len(got) > 1:
				fault = fmt.Sprintf("%s of %s has results %v in the bucket of %d", metric, h, got, b)
			case b >= exactMS && (len(got) == 0 || got[0] != want):
				fault = fmt.Sprintf("%s of %s has %v in the bucket of %d, want %d", metric, h, got, b, want)
			}
		}
	}
	return buckets, fault
}

// varve runs a command and returns its exit status and what it writes.
func varve(t *testing.T, args ...string) (status int, out string) {
	t.Helper()
	c := process.Command(t.Context(), process.Binary, args...)
	c.Dir, c.Env = t.TempDir(), process.Environment()
	var both bytes.Buffer
	c.Stdout, c.Stderr = &both, &both
	err := c.Run()
	if exit, ok := err.(*exec.ExitError); ok {
		return exit.ExitCode(), both.String()
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, both.String()
}

// same checks that two servers give the same answers. Metrics that still change are
// compared up to now.
func same(t *testing.T, stage string, a, b client, seed int) {
	t.Helper()
	status, out := varve(t, "compare", "--a", a.url, "--b", b.url, "--start-relative", "90d",
		"--to", fmt.Sprint(time.Now().UnixMilli()), "--questions", "150", "--seed", fmt.Sprint(seed))
	if status != 0 {
		t.Errorf("%s: %s and %s differ, status %d:\n%s", stage, a.name, b.name, status, out)
		return
	}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "compared") {
			t.Logf("%s: %s", stage, strings.TrimSpace(line))
		}
	}
}
