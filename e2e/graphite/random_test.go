package graphite

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"varve/e2e/process"
	"varve/internal/graphite/graphitetest"
)

var (
	questions = flag.Int("graphite.questions", 300, "random questions to ask both graphite-web and Varve")
	seed      = flag.Uint64("graphite.seed", 1, "seed of the random questions")
	differing = flag.Bool("graphite.differences", false, "log the random questions with known differences")
	topic     = flag.String("graphite.topic", "", "ask only about this topic: render, awkward, odd, times, find, tags or events")
)

// TestRandomQuestions sends the same questions to a graphite-web with the files of a
// carbon-cache and to a Varve that got the same lines. Their answers must be equal except
// for known differences.
func TestRandomQuestions(t *testing.T) {
	process.SkipShort(t)
	t.Parallel()
	p := startPair(t)
	a := &asker{Rand: rand.New(rand.NewPCG(*seed, 0)), functions: p.functions(t)}
	for n := range *questions {
		a.Rand = rand.New(rand.NewPCG(*seed, uint64(n)))
		a.awkward, a.odd = pick(a, []float64{0, 0, 0.1, 0.3}), pick(a, []float64{0.03, 0.03, 0.03, 0.5})
		q := a.draw(*topic)
		fault, known := p.ask(t, q)
		if known != "" {
			p.known[known]++
			if *differing {
				t.Logf("question %d: %s: %s\n%s", n, known, q, fault)
			}
		}
		if fault == "" || known != "" {
			continue
		}
		small, fault := p.shrink(t, q, fault)
		t.Errorf("-graphite.seed %d, question %d: %s\n%s", *seed, n, small, fault)
	}
	t.Logf("%d questions, %d answered alike without a fault, %d with series; %d refused by both", *questions, p.alike, p.full, p.refused)
	for why, n := range p.known {
		t.Logf("%5d %s", n, why)
	}
}

// draw draws a question of a topic.
func (a *asker) draw(topic string) *question {
	if topic == "" {
		topic = pick(a, []string{"render", "render", "render", "render", "render", "times", "find", "tags", "events"})
	}
	switch topic {
	case "times":
		return a.times()
	case "find":
		return a.find()
	case "tags":
		return a.tags()
	case "events":
		return a.events()
	case "awkward":
		a.awkward = 0.7
	case "odd":
		a.awkward, a.odd = 0, 0.9
	}
	return a.render()
}

// A pair is a graphite-web and a Varve with the same samples.
type pair struct {
	web                  *front
	varve                *process.Server
	known                map[string]int
	alike, full, refused int
}

func startPair(t *testing.T) *pair {
	t.Helper()
	dir := t.TempDir()
	schemas, aggregation := filepath.Join(dir, "storage-schemas.conf"), filepath.Join(dir, "storage-aggregation.conf")
	for path, text := range map[string]string{schemas: sampleSchemas, aggregation: sampleAggregation} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files := filepath.Join(dir, "files")
	library := process.Provide(t, "graphite-web", root, "graphiteweb.sh") + string(os.PathListSeparator) + process.Provide(t, "Whisper", root, "whisper.sh")
	p := &pair{known: map[string]int{}}
	p.web = runFront(t, library, fmt.Sprintf("FILES = [%q]\nCARBONLINK_HOSTS = []\nNOW = %d\n", files, sampleNow))
	older, newer := sampleLines()
	cache(t, dir, p.web.url, older+newer)
	p.varve = process.Start(t, filepath.Join(dir, "data"), "--storage-schemas", schemas, "--storage-aggregation", aggregation)
	send(t, p.varve, older)
	if _, err := p.varve.Want(t.Context(), http.StatusNoContent, http.MethodPost, "/admin/compact", ""); err != nil {
		t.Fatal(err)
	}
	send(t, p.varve, newer)
	for _, e := range sampleEvents() {
		for _, base := range []string{p.web.url, "http://" + p.varve.HTTP} {
			p.add(t, base, e)
		}
	}
	return p
}

// add adds an event.
func (p *pair) add(t *testing.T, base, event string) {
	t.Helper()
	w, err := p.web.client.Post(base+"/events/", "application/json", strings.NewReader(event))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	if text, err := io.ReadAll(w.Body); err != nil || w.StatusCode != http.StatusOK {
		t.Fatalf("the event %s: status %d, %v: %.300s", event, w.StatusCode, err, text)
	}
}

// cache makes carbon write lines to Whisper's files, and register series with
// tags.
func cache(t *testing.T, dir, web, lines string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*programRuns)
	defer cancel()
	library := process.Provide(t, "carbon", root, "carbon.sh")
	c := process.Command(ctx, "python3", filepath.Join("python", "cache.py"), library, dir, web)
	c.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONUTF8=1", "PYTHONPATH="+library)
	var said strings.Builder
	c.Stderr = &said
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("carbon does not start: %v\n%s", err, said.String())
	}
	conn, err := net.DialTimeout("tcp", "127.0.0.1:"+strings.TrimSpace(port), process.AnswerWithin)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(conn, lines)
	conn.Close()
	if err := c.Wait(); err != nil {
		t.Fatalf("carbon: %v\n%s", err, said.String())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (p *pair) functions(t *testing.T) (all []function) {
	t.Helper()
	var byName map[string]function
	w := ask(t, &p.web.client, p.web.url, http.MethodGet, "/functions", nil)
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(w.body), "1e9999", "1e99")), &byName); err != nil {
		t.Fatalf("%v in %.300s", err, w.body)
	}
	for _, f := range byName {
		if f.Name != "events" && !strings.HasPrefix(f.Name, "random") {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b function) int { return strings.Compare(a.Name, b.Name) })
	if len(all) < 150 {
		t.Fatalf("%d functions", len(all))
	}
	return all
}

// ask sends a question to both. It returns how the answers differ, and why they
// may.
func (p *pair) ask(t *testing.T, q *question) (fault, known string) {
	t.Helper()
	asked := q
	if unasked(q) != "" {
		asked = q.nested()
	}
	if why := unasked(asked); why != "" {
		return "", why
	}
	want, err := p.send(t, p.web.url, asked)
	if errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("graphite-web has ended after %d answers that were alike", p.alike)
	}
	if err != nil {
		return "", "graphite-web gives no answer"
	}
	got, err := p.send(t, "http://"+p.varve.HTTP, q)
	if err != nil {
		return err.Error(), ""
	}
	if got.status >= 500 {
		return fmt.Sprintf("status %d: %.300s", got.status, got.body), ""
	}
	if want.status >= 500 {
		return "", "graphite-web fails with 500"
	}
	c := &graphitetest.Case{Status: want.status, ContentType: want.contentType, Decoded: q.format()}
	c.Request.Path = q.path
	c.Request.Params = map[string]any{"target": q.form.Get("target")}
	if want.status < 400 {
		if c.Response, err = graphitetest.Decode(q.format(), want.body); err != nil {
			return "", "graphite-web's answer cannot be read: " + err.Error()
		}
		prepare(q, c)
	}
	fault = c.Fault(got.status, got.contentType, got.body)
	switch {
	case fault != "":
		return fault, excuse(q, want, got, fault)
	case want.status >= 400:
		p.refused++
	case len(want.body) > 5:
		p.full++
	}
	p.alike++
	return "", ""
}

func (p *pair) send(t *testing.T, base string, q *question) (answer, error) {
	t.Helper()
	r, err := q.request(t.Context(), base)
	if err != nil {
		t.Fatal(err)
	}
	w, err := p.web.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	return answer{w.StatusCode, w.Header.Get("Content-Type"), text}, err
}

// shrink simplifies the question as long as the answers differ.
func (p *pair) shrink(t *testing.T, q *question, fault string) (*question, string) {
	t.Helper()
	status := strings.HasPrefix(fault, "status")
	try := func(smaller *question) bool {
		f, known := p.ask(t, smaller)
		if f == "" || known != "" || strings.HasPrefix(f, "status") != status {
			return false
		}
		q, fault = smaller, f
		return true
	}
	for again, n := true, 0; again && n < 50; n++ {
		again = false
		for name := range q.form {
			switch name {
			case "now", "noCache", "target", "query":
				continue
			case "format":
				if q.form.Get(name) == "json" {
					continue
				}
			}
			c := *q
			c.form = maps.Clone(q.form)
			c.form.Del(name)
			if name == "format" {
				c.form.Set("format", "json")
			}
			if again = try(&c); again {
				break
			}
		}
		if again || q.root == nil {
			continue
		}
		q.root.simpler(func(n *node) bool {
			c := *q
			c.root = n
			c.form = maps.Clone(q.form)
			c.form.Set("target", n.String())
			again = try(&c)
			return !again
		})
	}
	return q, fault
}
