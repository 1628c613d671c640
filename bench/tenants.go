package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// A flood is what one tenant does to a server while another one is measured.
type flood struct {
	name  string
	path  string
	body  string
	crowd int // connections
}

const (
	neighbourFor   = 10 * time.Second
	neighbourPause = 10 * time.Millisecond
	floodPoints    = 2000 // of a body
	floodSeries    = 500  // of the flooding tenant
)

// neighbours measures how long one tenant of Varve waits, alone and while another one
// floods the server over all limits.
func (r *run) neighbours(ctx context.Context) error {
	i := slices.IndexFunc(r.targets, func(t target) bool { _, ours := t.(varveTarget); return ours })
	if i < 0 {
		return errors.New("there is no Varve to measure")
	}
	t := r.targets[i].(varveTarget)
	r.book.title("tenants", "writes of 100 points and questions for an hour of a series by one tenant, each every 10 ms, while another one floods the server")
	for round := range r.rounds {
		if err := r.neighboursOnce(ctx, t, round); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) neighboursOnce(ctx context.Context, t varveTarget, round int) (err error) {
	dir, remove, err := r.emptyDir("tenants", t)
	if err != nil {
		return err
	}
	defer remove()
	s, err := startTenants(ctx, t.binary, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.process.stop()) }()
	if err := s.fill(ctx); err != nil {
		return err
	}
	for _, f := range []flood{
		{name: "alone"},
		{name: "points", path: "/api/v1/datapoints", body: floodBody(), crowd: 8},
		{name: "questions", path: "/api/v1/datapoints/query", crowd: 16,
			body: `{"start_absolute":0,"metrics":[{"name":"flood","aggregators":[{"name":"percentile","percentile":0.9,"sampling":{"value":1,"unit":"seconds"}},{"name":"sma","size":100}]}]}`},
	} {
		writes, questions := s.beside(ctx, f)
		stage := "tenants, " + f.name
		r.book.add(stage, figure{"write p50", "ms"}, t.name(), round, quantile(writes, 0.5))
		r.book.add(stage, figure{"write p99", "ms"}, t.name(), round, quantile(writes, 0.99))
		r.book.add(stage, figure{"question p50", "ms"}, t.name(), round, quantile(questions, 0.5))
		r.book.add(stage, figure{"question p99", "ms"}, t.name(), round, quantile(questions, 0.99))
	}
	return nil
}

// tenants is a server with two of them.
type tenants struct {
	*process
	url    string
	tokens map[string]string
}

func startTenants(ctx context.Context, binary, dir string) (*tenants, error) {
	addrs, err := freeAddrs(1)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "varve.yaml")
	settings := fmt.Sprintf("data_dir: %s\nserver: {http_addr: %q, telnet_addr: \"\", carbon_addr: \"\", pickle_addr: \"\"}\nauth: {enabled: true}\ntenants: [{name: quiet}, {name: loud}]\n",
		filepath.Join(dir, "data"), addrs[0])
	if err := os.WriteFile(path, []byte(settings), 0o644); err != nil {
		return nil, err
	}
	s := &tenants{url: "http://" + addrs[0], tokens: map[string]string{}}
	for _, name := range []string{"quiet", "loud"} {
		made := exec.CommandContext(ctx, binary, "token", "create", "--config", path, name, "--tenant", name, "--role", "read,write")
		made.Stderr = os.Stderr
		token, err := made.Output()
		if err != nil {
			return nil, fmt.Errorf("make a token: %w", err)
		}
		s.tokens[name] = strings.TrimSpace(string(token))
	}
	if s.process, err = startProcess(ctx, binary, "serve", "--config", path); err != nil {
		return nil, err
	}
	return s, s.awaitReady(func() error {
		_, err := httpGet(ctx, s.url+"/api/v1/health/check")
		return err
	})
}

func (s *tenants) ask(ctx context.Context, of, path, body string) error {
	_, err := httpDo(ctx, http.MethodPost, s.url+path, http.Header{"Authorization": {"Bearer " + s.tokens[of]}}, []byte(body))
	return err
}

// fill gives both tenants an hour of points.
func (s *tenants) fill(ctx context.Context) error {
	now := time.Now().UnixMilli()
	for at := now - hourMS; at < now; at += hourMS / 36 {
		if err := s.ask(ctx, "quiet", "/api/v1/datapoints", points("calm", 1, 100, at)); err != nil {
			return err
		}
	}
	for range 20 {
		if err := s.ask(ctx, "loud", "/api/v1/datapoints", floodBody()); err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond) // within its limit
	}
	return nil
}

// points is a body of n points of each of some series, a second apart.
func points(name string, series, n int, fromMS int64) string {
	var b bytes.Buffer
	b.WriteByte('[')
	for s := range series {
		if s > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":%q,"tags":{"host":"h%d"},"datapoints":[`, name, s)
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "[%d,%d.5]", fromMS+int64(i)*1000, i*7919%1000)
		}
		b.WriteString("]}")
	}
	b.WriteByte(']')
	return b.String()
}

func floodBody() string {
	return points("flood", floodSeries, floodPoints/floodSeries, time.Now().UnixMilli()-hourMS)
}

// beside measures writes and questions of one tenant, in ms, beside a flood.
func (s *tenants) beside(ctx context.Context, f flood) (writes, questions []float64) {
	ctx, cancel := context.WithTimeout(ctx, neighbourFor)
	defer cancel()
	var attackers sync.WaitGroup
	for range f.crowd {
		attackers.Go(func() {
			for ctx.Err() == nil {
				if s.ask(ctx, "loud", f.path, f.body) != nil {
					time.Sleep(time.Millisecond) // refused: again
				}
			}
		})
	}
	time.Sleep(time.Second)
	timed := func(of *[]float64, path, body string) {
		began := time.Now()
		if err := s.ask(ctx, "quiet", path, body); err == nil {
			*of = append(*of, time.Since(began).Seconds()*1000)
		}
	}
	question := `{"start_relative":{"value":1,"unit":"hours"},"metrics":[{"name":"calm","aggregators":[{"name":"avg","sampling":{"value":1,"unit":"minutes"}}]}]}`
	for ctx.Err() == nil {
		timed(&writes, "/api/v1/datapoints", points("calm", 1, 100, time.Now().UnixMilli()-100_000))
		time.Sleep(neighbourPause)
		timed(&questions, "/api/v1/datapoints/query", question)
		time.Sleep(neighbourPause)
	}
	cancel()
	attackers.Wait()
	return writes, questions
}
