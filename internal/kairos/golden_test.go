package kairos

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"varve/internal/embedded"
	"varve/internal/query"
	"varve/internal/store"
)

// testdata/cases holds requests with the answers of KairosDB 1.3.0. Each file is
// one case, run on an empty store:
//
//   - Either `datapoints` (posted byte for byte as written in the file), `query`
//     and `followup`, or a list of `steps`, each a request or a text for the
//     telnet port.
//   - `wanted` lies over the other members: what a server without KairosDB's
//     faults answers, and what is expected here. `h2` is of no concern.
//   - Numbers are compared as numbers, whole ones exactly, others within
//     `tolerance`; the values of tags, and arrays named in `unordered`, as sets;
//     "$any" matches everything. A result without values counts as absent.
//
// testdata/waiting.txt names the cases of functions that are not built yet, and
// testdata/differing.txt those that are answered otherwise on purpose. A case on
// either list must fail, so that the lists stay honest. With #n only its n-th
// step, from 0, is listed, and the others must pass; with files: before it, only
// the run with points in files is meant, and with recorded: a question of
// TestRecordedKeyspaces.
//
// The cases run over the embedded store, with points in its head and with points
// in its block files, over the store that is the contract's reference, and over
// Cassandra (see TestGoldenCassandra).
func TestGolden(t *testing.T) {
	t.Run("reference", func(t *testing.T) { goldenRun{where: "reference", open: openReference}.all(t) })
	t.Run("head", func(t *testing.T) { goldenRun{where: "head", open: openEmbedded}.all(t) })
	t.Run("files", func(t *testing.T) { goldenRun{where: "files", open: openEmbedded, settle: compact}.all(t) })
}

// A goldenRun runs all cases over stores of one kind.
type goldenRun struct {
	where    string // for the lists
	open     opener
	settle   func(store.Store) error // moves samples to where the run wants them; nil leaves them
	parallel bool
}

// compact moves samples into block files.
func compact(s store.Store) error { return s.(*embedded.Store).Compact(context.Background()) }

func (run goldenRun) all(t *testing.T) {
	waiting := readList(t, "testdata/waiting.txt")
	differing := readList(t, "testdata/differing.txt")
	files, err := filepath.Glob("testdata/cases/*.json")
	if err != nil || len(files) < 231 {
		t.Fatalf("%d cases, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			if run.parallel {
				t.Parallel()
			}
			err := runCase(t, file, run, func(step int, err error) error {
				reason, listed := differing[fmt.Sprintf("%s#%d", name, step)]
				if listed && err == nil {
					return fmt.Errorf("passes, but is listed: %s", reason)
				}
				if listed {
					return nil
				}
				return err
			})
			listed := waiting[name] + differing[name] + differing[run.where+":"+name]
			switch {
			case listed == "" && err != nil:
				t.Error(err)
			case listed != "" && err == nil:
				t.Errorf("passes, but is listed: %s", listed)
			}
		})
	}
	for name := range waiting {
		requireCase(t, name)
	}
	for name := range differing {
		requireCase(t, name)
	}
}

// requireCase fails for a listed case that is not there.
func requireCase(t *testing.T, name string) {
	if strings.HasPrefix(name, recordedPrefix) {
		return
	}
	name, _, _ = strings.Cut(name, "#")
	name = name[strings.IndexByte(name, ':')+1:]
	if _, err := os.Stat("testdata/cases/" + name + ".json"); err != nil {
		t.Errorf("listed: %v", err)
	}
}

// readList reads lines with a case name and a reason.
func readList(t *testing.T, file string) map[string]string {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list := map[string]string{}
	for s := bufio.NewScanner(f); s.Scan(); {
		line := strings.TrimSpace(s.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, reason, _ := strings.Cut(line, " ")
		if reason == "" {
			t.Fatalf("%s: %s has no reason", file, name)
		}
		list[name] = reason
	}
	return list
}

// A goldenStep is one request and its answer.
type goldenStep struct {
	Method        string
	Path          string
	Body          json.RawMessage
	Text          *string
	Headers       map[string]string
	Gzip          bool
	Telnet        *string
	ExpectStatus  int `json:"expect_status"`
	Expect        json.RawMessage
	ExpectMatch   string             `json:"expect_match"`
	ExpectHeaders map[string]*string `json:"expect_headers"`
	Unordered     []string
	PauseMS       int `json:"pause_ms"`
	Once          bool
	Tolerance     float64
}

type goldenCase struct {
	Datapoints   json.RawMessage
	IngestStatus int             `json:"ingest_status"`
	IngestExpect json.RawMessage `json:"ingest_expect"`
	Endpoint     string
	Query        json.RawMessage
	ExpectStatus int `json:"expect_status"`
	Expect       json.RawMessage
	Followup     *struct{ Query, Expect json.RawMessage }
	Tolerance    float64
	Steps        []json.RawMessage
}

// overlay lays the member `wanted` over the others.
func overlay(raw json.RawMessage, into any) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return err
	}
	var wanted map[string]json.RawMessage
	if w, ok := members["wanted"]; ok {
		if err := json.Unmarshal(w, &wanted); err != nil {
			return err
		}
	}
	for name, value := range wanted {
		members[name] = value
	}
	delete(members, "wanted")
	// Marshal would compact RawMessages, so each member is added by itself.
	for name, value := range members {
		one := append(append([]byte(`{"`+name+`":`), value...), '}')
		if err := json.Unmarshal(one, into); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func loadCase(file string) ([]goldenStep, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var c goldenCase
	if err := overlay(raw, &c); err != nil {
		return nil, err
	}
	var steps []goldenStep
	for _, raw := range c.Steps {
		var s goldenStep
		if err := overlay(raw, &s); err != nil {
			return nil, err
		}
		steps = append(steps, s)
	}
	if c.Datapoints != nil {
		status := c.IngestStatus
		if status == 0 {
			status = http.StatusNoContent
		}
		steps = append(steps, goldenStep{Path: "/api/v1/datapoints", Body: c.Datapoints, ExpectStatus: status, Expect: c.IngestExpect})
	}
	if c.Query != nil {
		if c.Endpoint == "" {
			c.Endpoint = "/api/v1/datapoints/query"
		}
		steps = append(steps, goldenStep{Path: c.Endpoint, Body: c.Query, ExpectStatus: c.ExpectStatus, Expect: c.Expect, Tolerance: c.Tolerance})
	}
	if c.Followup != nil {
		steps = append(steps, goldenStep{Path: "/api/v1/datapoints/query", Body: c.Followup.Query, Expect: c.Followup.Expect, Tolerance: c.Tolerance})
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("%s: no steps", file)
	}
	return steps, nil
}

// runCase runs all steps; verdict turns the result of each into an error or nil.
func runCase(t *testing.T, file string, run goldenRun, verdict func(step int, err error) error) error {
	steps, err := loadCase(file)
	if err != nil {
		t.Fatal(err)
	}
	s := startServerWith(t, run.open(t), query.DefaultConfig(), DefaultConfig())
	settle := func() error {
		if run.settle == nil {
			return nil
		}
		return run.settle(s.store)
	}
	telnet := false
	for i := range steps {
		step := &steps[i]
		time.Sleep(time.Duration(step.PauseMS) * time.Millisecond / 10) // our writes are not asynchronous
		telnet = telnet || step.Telnet != nil
		err := s.step(step)
		for deadline := time.Now().Add(2 * time.Minute); err != nil && telnet && !step.Once && step.Telnet == nil && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
			if err := settle(); err != nil {
				return err
			}
			err = s.step(step)
		}
		if err := verdict(i, err); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		if step.Path == "/api/v1/datapoints" || step.Telnet != nil {
			if err := settle(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *testServer) step(step *goldenStep) error {
	if step.Telnet != nil {
		return s.telnetStep(step)
	}
	req, err := s.request(step)
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := readAnswer(resp)
	if err != nil {
		return err
	}
	want := step.ExpectStatus
	if want == 0 {
		want = http.StatusOK
	}
	if resp.StatusCode != want {
		return fmt.Errorf("%s %s: status %d, want %d: %.300s", req.Method, req.URL.Path, resp.StatusCode, want, body)
	}
	for name, value := range step.ExpectHeaders {
		got, ok := resp.Header[http.CanonicalHeaderKey(name)]
		if value == nil && ok {
			return fmt.Errorf("%s: header %s: %q", req.URL.Path, name, got)
		}
		if value != nil && (len(got) != 1 || got[0] != *value) {
			return fmt.Errorf("%s: header %s: %q, want %q", req.URL.Path, name, got, *value)
		}
	}
	return step.compareBody(body)
}

func readAnswer(resp *http.Response) ([]byte, error) {
	var r io.Reader = resp.Body
	if resp.Header.Get("Content-Encoding") == "gzip" {
		zip, err := gzip.NewReader(r)
		if err != nil {
			return nil, err
		}
		r = zip
	}
	return io.ReadAll(r)
}

func (s *testServer) request(step *goldenStep) (*http.Request, error) {
	method := step.Method
	body := []byte(step.Body)
	if step.Text != nil {
		body = []byte(*step.Text)
	}
	has := step.Body != nil || step.Text != nil
	if method == "" {
		method = http.MethodGet
		if has {
			method = http.MethodPost
		}
	}
	if step.Gzip {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		w.Write(body)
		w.Close()
		body = b.Bytes()
	}
	req, err := http.NewRequest(method, s.url+step.Path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if has {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range step.Headers {
		req.Header.Set(name, value)
	}
	return req, nil
}

func (s *testServer) telnetStep(step *goldenStep) error {
	conn, err := net.Dial("tcp", s.telnet)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, *step.Telnet); err != nil {
		return err
	}
	conn.(*net.TCPConn).CloseWrite()
	conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	reply, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	if step.ExpectMatch != "" && !regexp.MustCompile("^(?:"+step.ExpectMatch+")$").Match(reply) {
		return fmt.Errorf("telnet: reply %q does not match %s", reply, step.ExpectMatch)
	}
	return nil
}

func (step *goldenStep) compareBody(body []byte) error {
	if step.ExpectMatch != "" && !regexp.MustCompile("^(?s:"+step.ExpectMatch+")$").Match(body) {
		return fmt.Errorf("body does not match %s: %.300s", step.ExpectMatch, body)
	}
	if text := string(step.Expect); text == "" || text == "null" || text == `"$any"` {
		return nil
	}
	want, err := decodeJSON(step.Expect)
	if err != nil {
		return err
	}
	if text, ok := want.(string); ok {
		if text != string(body) {
			return fmt.Errorf("body %q, want %q", body, text)
		}
		return nil
	}
	got, err := decodeJSON(body)
	if err != nil {
		return fmt.Errorf("body %.300q: %w", body, err)
	}
	c := comparer{tolerance: step.Tolerance, unordered: step.Unordered}
	if c.tolerance == 0 {
		c.tolerance = 1e-12
	}
	if !strings.HasSuffix(step.Path, "/tags") {
		want, got = dropEmpty(want), dropEmpty(got)
	}
	if err := c.compare("", "", got, want); err != nil {
		return fmt.Errorf("%w\n got %.2000s\nwant %.2000s", err, body, step.Expect)
	}
	return nil
}

func decodeJSON(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}

// dropEmpty removes results without values.
func dropEmpty(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			v[name] = dropEmpty(member)
		}
		if results, ok := v["results"].([]any); ok {
			v["results"] = slices.DeleteFunc(results, func(r any) bool {
				object, ok := r.(map[string]any)
				if !ok {
					return false
				}
				values, ok := object["values"].([]any)
				return ok && len(values) == 0
			})
		}
	case []any:
		for i := range v {
			v[i] = dropEmpty(v[i])
		}
	}
	return v
}

type comparer struct {
	tolerance float64
	unordered []string
}

// compare reports the first difference. name is the name of the enclosing member.
func (c comparer) compare(path, name string, got, want any) error {
	differ := func() error { return fmt.Errorf("%s: got %v, want %v", path, got, want) }
	switch want := want.(type) {
	case string:
		if want != "$any" && want != got {
			return differ()
		}
	case json.Number:
		g, ok := got.(json.Number)
		if !ok || !c.equalNumbers(string(g), string(want)) {
			return differ()
		}
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok || len(g) != len(want) {
			return differ()
		}
		for member, w := range want {
			v, ok := g[member]
			if !ok {
				return fmt.Errorf("%s.%s: missing", path, member)
			}
			within := member
			if name == "tags" {
				within = "tags[]"
			}
			if err := c.compare(path+"."+member, within, v, w); err != nil {
				return err
			}
		}
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(want) {
			return differ()
		}
		if name == "tags[]" || slices.Contains(c.unordered, name) {
			g, want = sorted(g), sorted(want)
		}
		for i := range want {
			if err := c.compare(fmt.Sprintf("%s[%d]", path, i), name, g[i], want[i]); err != nil {
				return err
			}
		}
	default:
		if got != want {
			return differ()
		}
	}
	return nil
}

func sorted(list []any) []any {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return list
}

func (c comparer) equalNumbers(got, want string) bool {
	if got == want {
		return true
	}
	if !strings.ContainsAny(got+want, ".eE") && len(strings.TrimPrefix(want, "-")) > 15 {
		return false // long integers are compared exactly
	}
	var g, w float64
	if _, err := fmt.Sscan(got, &g); err != nil {
		return false
	}
	if _, err := fmt.Sscan(want, &w); err != nil {
		return false
	}
	return g == w || math.Abs(g-w) <= c.tolerance*math.Max(math.Abs(g), math.Abs(w))
}
