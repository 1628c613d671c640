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
	"strings"
	"time"
)

// The goal is relative to besideElsewhere. A flood takes processor time wherever it is
// sent, and client, flood and server share one machine here. The cost of serving both
// tenants with one server shows in comparison with a server for each.
const (
	besideAlone     = "question p99 to that alone"
	besideElsewhere = "question p99 to that beside a flood of another server"
)

const (
	neighbourTurns  = 8 // of each flood, alternately at the same server and at another one
	neighbourFor    = 2 * time.Second
	neighbourSettle = 300 * time.Millisecond // after a flood has begun or ended
	neighbourPause  = 10 * time.Millisecond

	floodSeries = 500 // of the flooding tenant
	floodHour   = 720 // points of each of them
	floodPoints = 2000
)

// floods are the kinds of load with which one tenant floods a server while
// another tenant is measured.
func floods() []flood {
	return []flood{
		{Name: "alone"},
		{Name: "points", Path: "/api/v1/datapoints", Body: points("flood", floodSeries, floodPoints/floodSeries, time.Now().UnixMilli()), Crowd: 8},
		{Name: "questions", Path: "/api/v1/datapoints/query", Crowd: 16,
			Body: `{"start_absolute":0,"metrics":[{"name":"flood","aggregators":[{"name":"percentile","percentile":0.9,"sampling":{"value":1,"unit":"seconds"}},{"name":"sma","size":100}]}]}`},
		{Name: "answers", Path: "/api/v1/datapoints/query", Crowd: 16,
			Body: `{"start_absolute":0,"metrics":[{"name":"flood","group_by":[{"name":"tag","tags":["host"]}]}]}`},
	}
}

// neighbours measures how long one tenant of Varve waits, alone and while another
// tenant floods the server beyond all limits.
func (r *run) neighbours(ctx context.Context) error {
	t, err := r.varve()
	if err != nil {
		return err
	}
	r.book.title("tenants", "writes of 100 points and questions for an hour of a series by one tenant, in turn, 10 ms apart, while another one floods the server")
	for round := range r.rounds {
		if err := r.neighboursOnce(ctx, t, round); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) neighboursOnce(ctx context.Context, t varveTarget, round int) (err error) {
	begin := func(what string) (*tenants, func(), error) {
		dir, remove, err := r.emptyDir(what, t)
		if err != nil {
			return nil, nil, err
		}
		s, err := startTenants(ctx, t.binary, dir)
		if err != nil {
			remove()
			return nil, nil, err
		}
		return s, func() { err = errors.Join(err, s.process.stop()); remove() }, s.fill(ctx)
	}
	s, end, err := begin("tenants")
	if end != nil {
		defer end()
	}
	if err != nil {
		return err
	}
	other, endOther, err := begin("elsewhere")
	if endOther != nil {
		defer endOther()
	}
	if err != nil {
		return err
	}
	// The machine may be busy with something else. Short turns let that hit all floods alike.
	all := floods()
	times, elsewhere := make([]neighbourTimes, len(all)), make([]neighbourTimes, len(all))
	for range neighbourTurns {
		for i, f := range all {
			if err := s.beside(ctx, f, s, &times[i]); err != nil {
				return err
			}
			if f.Path == "" {
				continue
			}
			if err := s.beside(ctx, f, other, &elsewhere[i]); err != nil {
				return err
			}
		}
	}
	alone := times[0]
	for i, f := range all {
		stage, n, e := "tenants, "+f.Name, times[i], elsewhere[i]
		r.book.add(stage, figure{"write p50", "ms"}, t.name(), round, quantile(n.writes, 0.5))
		r.book.add(stage, figure{"write p99", "ms"}, t.name(), round, quantile(n.writes, 0.99))
		r.book.add(stage, figure{"question p50", "ms"}, t.name(), round, quantile(n.questions, 0.5))
		r.book.add(stage, figure{"question p99", "ms"}, t.name(), round, quantile(n.questions, 0.99))
		if f.Path == "" {
			continue
		}
		r.book.add(stage, figure{"write p99 to that alone", ""}, t.name(), round, quantile(n.writes, 0.99)/quantile(alone.writes, 0.99))
		r.book.add(stage, figure{"write p99 to that beside a flood of another server", ""}, t.name(), round, quantile(n.writes, 0.99)/quantile(e.writes, 0.99))
		r.book.add(stage, figure{besideAlone, ""}, t.name(), round, quantile(n.questions, 0.99)/quantile(alone.questions, 0.99))
		r.book.add(stage, figure{besideElsewhere, ""}, t.name(), round, quantile(n.questions, 0.99)/quantile(e.questions, 0.99))
		r.book.add(stage, figure{"flood answered", "1/s"}, t.name(), round, n.flooded.Answered/n.seconds)
		r.book.add(stage, figure{"flood refused", "1/s"}, t.name(), round, n.flooded.Refused/n.seconds)
		r.book.add(stage, figure{"flood of another server answered", "1/s"}, t.name(), round, e.flooded.Answered/e.seconds)
	}
	return nil
}

// neighbourTimes are the times measured during a flood.
type neighbourTimes struct {
	writes, questions []float64 // ms each
	flooded           flooded
	seconds           float64
}

// tenants is a server with two tenants.
type tenants struct {
	*process
	url     string
	tokens  map[string]string
	startMS int64 // of the points that are asked for
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
	return s, s.awaitReady(usualPatience, answers(ctx, s.url+"/api/v1/health/check"))
}

func (s *tenants) ask(ctx context.Context, of, path, body string) error {
	_, err := httpDo(ctx, http.MethodPost, s.url+path, http.Header{"Authorization": {"Bearer " + s.tokens[of]}}, []byte(body))
	return err
}

// fill gives both tenants an hour of points.
func (s *tenants) fill(ctx context.Context) error {
	s.startMS = time.Now().UnixMilli() - hourMS
	for i := range int64(36) {
		if err := s.ask(ctx, "quiet", "/api/v1/datapoints", points("calm", 1, 100, s.startMS+i*100_000)); err != nil {
			return err
		}
	}
	const once = 40
	for i := range int64(floodHour / once) {
		if err := s.ask(ctx, "loud", "/api/v1/datapoints", points("flood", floodSeries, once, s.startMS+i*once*1000)); err != nil {
			return err
		}
		time.Sleep(300 * time.Millisecond) // within its limit
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

// beside measures writes and questions of one tenant of s during a flood by a tenant of
// loud, which may be s. The answer to the question does not change, because the points
// that are written meanwhile belong to another metric.
func (s *tenants) beside(ctx context.Context, f flood, loud *tenants, n *neighbourTimes) error {
	end := func() (flooded, error) { return flooded{}, nil }
	began := time.Now()
	if f.Path != "" {
		f.Path, f.Token = loud.url+f.Path, loud.tokens["loud"]
		var err error
		if end, err = startFlood(ctx, f); err != nil {
			return err
		}
	}
	time.Sleep(neighbourSettle)
	timed := func(of *[]float64, path, body string) error {
		asked := time.Now()
		err := s.ask(ctx, "quiet", path, body)
		*of = append(*of, time.Since(asked).Seconds()*1000)
		time.Sleep(neighbourPause)
		return err
	}
	question := fmt.Sprintf(`{"start_absolute":%d,"end_absolute":%d,"metrics":[{"name":"calm","aggregators":[{"name":"avg","sampling":{"value":1,"unit":"minutes"}}]}]}`, s.startMS, s.startMS+hourMS)
	var err error
	for measured := time.Now(); err == nil && time.Since(measured) < neighbourFor; {
		err = errors.Join(timed(&n.writes, "/api/v1/datapoints", points("calm_now", 100, 1, time.Now().UnixMilli())),
			timed(&n.questions, "/api/v1/datapoints/query", question))
	}
	done, failed := end()
	n.flooded.Answered += done.Answered
	n.flooded.Refused += done.Refused
	n.seconds += time.Since(began).Seconds()
	time.Sleep(neighbourSettle)
	return errors.Join(err, failed)
}
