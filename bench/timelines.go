package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// An eventTarget is a kind of server that keeps events in the order of time.
type eventTarget interface {
	installable
	start(ctx context.Context, dir string) (eventServer, error)
}

// An eventServer is a running eventTarget.
type eventServer interface {
	account() *process
	connect(ctx context.Context) (eventClient, error)
}

// An eventClient has a connection of its own, and is used by one goroutine.
type eventClient interface {
	// append stores events. They are durable, with fsync, when it returns.
	append(ctx context.Context, events []sentEvent) error
	// newest reads the newest events and returns how many it got.
	newest(ctx context.Context, limit int) (int, error)
	close() error
}

// A sentEvent is an event as it is sent to all servers.
type sentEvent struct {
	us   int64  // time, microseconds
	data []byte // an object of JSON, of eventDataBytes
}

// What is sent.
const (
	stream         = "deploys"
	eventType      = "deploy"
	eventDataBytes = 200
	manyEvents     = 1_000_000 // events that are stored when pages are read; a tenth in quick runs
	batchEvents    = 1000      // of a request
	batchSenders   = 8         // connections
	singleSenders  = 64
	singlesFor     = 5 * time.Second
	pageEvents     = 100
)

var (
	figureAppended = figure{"events", "1/s"}
	figureEventCPU = figure{"server CPU", "s/M events"}
	figureEventRAM = figure{"peak RSS", "MB"}
	figureEventOn  = figure{"on disk", "bytes/event"}
	figureLoad     = figure{"load of the machine, 1 minute", ""}
)

// timelineStage measures appending events and reading the newest page, and compares
// with servers that people use instead.
func (r *run) timelineStage(ctx context.Context) error {
	ours, err := r.varve()
	if err != nil {
		return err
	}
	found, err := installed[eventTarget](ctx, r, varveEvents{ours}, redisTarget{}, postgresTarget{})
	if err != nil {
		return err
	}
	for round := range r.rounds {
		for i := range found {
			t := found[(round+i)%len(found)]
			if err := r.timelinesOnce(ctx, t, round); err != nil {
				r.book.fail("timelines", t.name(), err)
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			fmt.Fprintf(os.Stderr, "timelines round %d: %s done\n", round+1, t.name())
		}
	}
	return nil
}

func (r *run) timelinesOnce(ctx context.Context, t eventTarget, round int) (err error) {
	dir, err := os.MkdirTemp(r.dir, "timelines-"+t.name()+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := t.start(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.account().stop()) }()
	m := &eventMeter{run: r, target: t, server: s, round: round, clock: time.Now().UnixMicro()}

	many := int64(manyEvents)
	if r.quick {
		many /= 10
	}
	stage := "timelines, batches"
	r.book.title(stage, fmt.Sprintf("%d events of %d bytes, %d a request, %d connections, fsync before each answer", many, eventDataBytes, batchEvents, batchSenders))
	if err := m.appendAll(ctx, stage, batchSenders, batchEvents, func() bool { return m.sent.Add(batchEvents) <= many }); err != nil {
		return err
	}
	m.add(stage, figureLoad, loadAverage())
	on, err := diskBytes(dir)
	if err != nil {
		return err
	}
	m.add(stage, figureEventOn, float64(on)/float64(many))
	if used, err := s.account().usage(); err == nil && t.name() != (postgresTarget{}).name() { // which has one process per connection
		m.add(stage, figureEventRAM, float64(used.peak)/1e6)
	}
	if err := m.pages(ctx, "timelines, newest page"); err != nil {
		return err
	}
	stage = "timelines, singles"
	r.book.title(stage, fmt.Sprintf("one event of %d bytes a request, %d connections, for %v", eventDataBytes, singleSenders, singlesFor))
	until := time.Now().Add(singlesFor)
	return m.appendAll(ctx, stage, singleSenders, 1, func() bool { return time.Now().Before(until) })
}

// An eventMeter measures one server.
type eventMeter struct {
	run    *run
	target eventTarget
	server eventServer
	round  int
	clock  int64 // time of the first event
	sent   atomic.Int64
	stamps atomic.Int64
}

func (m *eventMeter) add(stage string, f figure, v float64) {
	m.run.book.add(stage, f, m.target.name(), m.round, v)
}

// appendAll sends requests of n events over some connections as long as more returns
// true.
func (m *eventMeter) appendAll(ctx context.Context, stage string, connections, n int, more func() bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	clients := make([]eventClient, connections)
	for i := range clients {
		c, err := m.server.connect(ctx)
		if err != nil {
			return err
		}
		defer c.close()
		clients[i] = c
	}
	before, err := m.server.account().familySeconds()
	if err != nil {
		return err
	}
	var (
		wait   sync.WaitGroup
		mu     sync.Mutex
		millis []float64
		failed error
	)
	began := time.Now()
	for i, c := range clients {
		wait.Go(func() {
			own, err := m.sendOver(ctx, c, i, n, more)
			mu.Lock()
			defer mu.Unlock()
			millis = append(millis, own...)
			if err != nil && failed == nil {
				failed = err
				cancel()
			}
		})
	}
	wait.Wait()
	taken := time.Since(began)
	if failed != nil {
		return failed
	}
	after, err := m.server.account().familySeconds()
	if err != nil {
		return err
	}
	events := float64(len(millis) * n)
	m.add(stage, figureAppended, events/taken.Seconds())
	m.add(stage, figure{"request, p50", "ms"}, median(millis))
	m.add(stage, figure{"request, p99", "ms"}, quantile(millis, 0.99))
	m.add(stage, figureEventCPU, (after-before)/events*1e6)
	return nil
}

// sendOver sends requests over one connection, and returns the time of each in
// milliseconds.
func (m *eventMeter) sendOver(ctx context.Context, c eventClient, sender, n int, more func() bool) (millis []float64, err error) {
	events := make([]sentEvent, n)
	for more() {
		for i := range events {
			at := m.stamps.Add(1)
			events[i] = sentEvent{m.clock + at, eventData(at)}
		}
		began := time.Now()
		if err := c.append(ctx, events); err != nil {
			return millis, fmt.Errorf("sender %d: %w", sender, err)
		}
		millis = append(millis, millisSince(began))
	}
	return millis, nil
}

// pages reads the newest page repeatedly over one connection.
func (m *eventMeter) pages(ctx context.Context, stage string) error {
	m.run.book.title(stage, fmt.Sprintf("the %d newest events, one connection", pageEvents))
	c, err := m.server.connect(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	var millis []float64
	before, err := m.server.account().familySeconds()
	if err != nil {
		return err
	}
	for range 10 * m.run.turns {
		began := time.Now()
		n, err := c.newest(ctx, pageEvents)
		if err == nil && n != pageEvents {
			err = fmt.Errorf("the newest page has %d events, want %d", n, pageEvents)
		}
		if err != nil {
			return err
		}
		millis = append(millis, millisSince(began))
	}
	after, err := m.server.account().familySeconds()
	if err != nil {
		return err
	}
	m.add(stage, figureP50, median(millis))
	m.add(stage, figureP99, quantile(millis, 0.99))
	m.add(stage, figureQueryCPU, (after-before)*1000/float64(len(millis)))
	return nil
}

// eventData makes the data of an event, which is about as compressible as a line of a log.
func eventData(n int64) []byte {
	words := []string{"service", "web", "version", "started", "request", "database", "timeout", "user", "deploy", "finished", "connection", "closed"}
	data := fmt.Appendf(make([]byte, 0, eventDataBytes), `{"number":%d,"message":"`, n)
	for state := uint64(n); len(data) < eventDataBytes-2; {
		state = state*6364136223846793005 + 1442695040888963407
		data = fmt.Appendf(data, "%s %x ", words[state>>33%uint64(len(words))], state>>44)
	}
	return append(data[:eventDataBytes-2], `"}`...)
}

// loadAverage is the load average of the last minute, 0 if it is unknown.
func loadAverage() (load float64) {
	text, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, err = fmt.Sscan(string(text), &load)
	}
	if err != nil {
		return 0
	}
	return load
}

// varveEvents is Varve as a target of events.
type varveEvents struct{ varveTarget }

func (t varveEvents) start(ctx context.Context, dir string) (eventServer, error) {
	s, err := t.varveTarget.start(ctx, dir, usual)
	if err != nil {
		return nil, err
	}
	return &varveEventServer{s.(*varve)}, nil
}

type varveEventServer struct{ *varve }

func (s *varveEventServer) connect(context.Context) (eventClient, error) {
	own := &http.Client{Transport: &http.Transport{DisableCompression: true, MaxConnsPerHost: 1}}
	return &varveEventClient{client: own, url: "http://" + s.http + "/api/v1/timelines/" + stream + "/events"}, nil
}

type varveEventClient struct {
	client *http.Client
	url    string
	body   []byte
}

func (c *varveEventClient) append(ctx context.Context, events []sentEvent) error {
	c.body = c.body[:0]
	for _, e := range events {
		c.body = fmt.Appendf(c.body, `{"time_us":%d,"type":%q,"data":`, e.us, eventType)
		c.body = append(append(c.body, e.data...), "}\n"...)
	}
	answer, err := httpOver(ctx, c.client, http.MethodPost, c.url, http.Header{"Content-Type": {"application/x-ndjson"}}, c.body)
	if want := fmt.Sprintf(`{"accepted":%d,`, len(events)); err == nil && !strings.HasPrefix(string(answer), want) {
		err = fmt.Errorf("append: the answer %.200s does not begin with %s", answer, want)
	}
	return err
}

func (c *varveEventClient) newest(ctx context.Context, limit int) (int, error) {
	answer, err := httpOver(ctx, c.client, http.MethodGet, fmt.Sprintf("%s?limit=%d", c.url, limit), nil, nil)
	return strings.Count(string(answer), `"type":"`+eventType+`"`), err
}

func (c *varveEventClient) close() error {
	c.client.CloseIdleConnections()
	return nil
}
