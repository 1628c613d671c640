package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/e2e/process"
	"varve/internal/embedded"
	"varve/internal/ingest"
	"varve/internal/ingest/kairosjson"
	"varve/internal/ingest/telnet"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/store/storetest"
	"varve/internal/units"
)

// slowDisk accepts writes one after another at a fixed rate, and delays each
// sync. Files whose path does not contain part are on a fast disk.
type slowDisk struct {
	vfs.FS
	part           string
	mu             sync.Mutex
	bytesPerSecond atomic.Int64 // 0 = as fast as it can
}

const slowSync = 10 * time.Millisecond

func (d *slowDisk) write(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if rate := d.bytesPerSecond.Load(); rate > 0 {
		time.Sleep(time.Duration(n) * time.Second / time.Duration(rate))
	}
}

func (d *slowDisk) sync() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bytesPerSecond.Load() > 0 {
		time.Sleep(slowSync)
	}
}

func (d *slowDisk) file(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil || !strings.Contains(name, d.part) {
		return f, err
	}
	return &slowFile{f, d}, nil
}

func (d *slowDisk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, c)
	return d.file(name, f, err)
}

func (d *slowDisk) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.OpenReadWrite(name, c, opts...)
	return d.file(name, f, err)
}

func (d *slowDisk) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.ReuseForWrite(oldname, newname, c)
	return d.file(newname, f, err)
}

func (d *slowDisk) Unwrap() vfs.FS { return d.FS }

type slowFile struct {
	vfs.File
	disk *slowDisk
}

func (f *slowFile) Write(b []byte) (int, error) {
	f.disk.write(len(b))
	return f.File.Write(b)
}

func (f *slowFile) WriteAt(b []byte, at int64) (int, error) {
	f.disk.write(len(b))
	return f.File.WriteAt(b, at)
}

func (f *slowFile) Sync() error {
	f.disk.sync()
	return f.File.Sync()
}

func (f *slowFile) SyncData() error {
	f.disk.sync()
	return f.File.SyncData()
}

// An overload is senders against a store on a slow disk, in this process.
type overload struct {
	t        *testing.T
	disk     *slowDisk
	registry *prometheus.Registry
	http     *httptest.Server
	telnet   net.Listener

	acknowledged, refused, streamed [overloadSenders]atomic.Int64 // samples
}

const (
	overloadSenders = 8 // of each protocol
	overloadBatch   = 2000
	overloadFor     = 3 * time.Second
	overloadRate    = 100_000 // bytes per second
	inFlightMax     = 30_000  // samples
	headMax         = 2 * units.MiB
	heapMax         = 120_000_000 // bytes
)

// TestOverload sends a server on a slow disk many times what it can store. First
// the whole disk is slow, so that the log delays writers; then only block files
// are, so that the head does. The samples in flight, the head and the process's
// memory stay within their bounds; HTTP is answered 503 or 204, and telnet is
// read slowly. Afterwards the store has every acknowledged sample and every line
// that was sent.
func TestOverload(t *testing.T) {
	process.SkipShort(t)
	t.Run("slow log", func(t *testing.T) { overloaded(t, "") })
	t.Run("slow block files", func(t *testing.T) { overloaded(t, "blocks") })
}

func overloaded(t *testing.T, part string) {
	o := &overload{t: t, disk: &slowDisk{FS: vfs.Default, part: part}, registry: prometheus.NewRegistry()}
	dir := t.TempDir()
	config := embedded.DefaultConfig()
	config.HeadBytes, config.HeadBytesMax, config.Log.BufferBytes = headMax/2, headMax, 256*units.KiB
	config.MinFreeBytes = 0
	s, err := embedded.Open(o.disk, dir, config, embedded.Options{Registerer: o.registry})
	if err != nil {
		t.Fatal(err)
	}
	stop := o.serve(s)
	o.disk.bytesPerSecond.Store(overloadRate)
	o.load()
	o.disk.bytesPerSecond.Store(0)
	stop()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = embedded.Open(o.disk, dir, config, embedded.Options{}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range overloadSenders {
		if got, want := countSamples(t, s, fmt.Sprintf("over.http%d", i)), o.acknowledged[i].Load(); got < want {
			t.Errorf("HTTP sender %d: %d samples acknowledged, %d there", i, want, got)
		}
		if got, want := countSamples(t, s, fmt.Sprintf("over.telnet%d", i)), o.streamed[i].Load(); got != want {
			t.Errorf("telnet sender %d: %d lines sent, %d samples there", i, want, got)
		}
	}
}

// serve starts HTTP and telnet. stop waits until all sent points are stored,
// and ends both.
func (o *overload) serve(s *embedded.Store) (stop func()) {
	limits := ingest.DefaultConfig()
	limits.MaxSamplesInFlight, limits.BusyWait, limits.StoreWait = inFlightMax, 100*time.Millisecond, time.Second
	pipeline := ingest.New(s, limits, ingest.Options{Registerer: o.registry})
	mux := http.NewServeMux()
	for _, r := range kairosjson.New(pipeline, nil).Routes() {
		if r.Method == http.MethodPost {
			mux.Handle("POST "+r.Path, r.Handler)
		}
	}
	o.http = httptest.NewServer(mux)
	var err error
	if o.telnet, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		o.t.Fatal(err)
	}
	lines := telnet.NewServer(pipeline, telnet.DefaultConfig(), telnet.Options{Registerer: o.registry})
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- lines.Serve(ctx, o.telnet) }()
	return func() {
		o.http.Close()
		limit, done := context.WithTimeout(ctx, time.Minute)
		defer done()
		for o.metric("varve_telnet_connections") > 0 && limit.Err() == nil {
			time.Sleep(process.PollEvery)
		}
		if limit.Err() != nil {
			o.t.Error("telnet connections are not read to their end within a minute")
		}
		cancel()
		if err := <-served; err != nil && ctx.Err() == nil {
			o.t.Error(err)
		}
	}
}

// load runs the senders, and watches the metrics.
func (o *overload) load() {
	ctx, cancel := context.WithTimeout(context.Background(), overloadFor)
	defer cancel()
	var wg sync.WaitGroup
	for i := range overloadSenders {
		wg.Go(func() { o.post(ctx, i) })
		wg.Go(func() { o.stream(ctx, i) })
	}
	var head, inFlight, heap float64
	for ctx.Err() == nil {
		head = max(head, o.metric("varve_store_head_bytes"))
		inFlight = max(inFlight, o.metric("varve_ingest_samples_in_flight"))
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		heap = max(heap, float64(m.HeapAlloc))
		time.Sleep(20 * time.Millisecond)
	}
	o.disk.bytesPerSecond.Store(10 * overloadRate) // the senders end sooner
	wg.Wait()
	sum := func(of *[overloadSenders]atomic.Int64) (n int64) {
		for i := range of {
			n += of[i].Load()
		}
		return n
	}
	acknowledged, refused := sum(&o.acknowledged), sum(&o.refused)
	o.t.Logf("HTTP: %d samples acknowledged, %d refused; telnet: %d lines sent; at most %.0f samples in flight, %.0f bytes in the head, %.0f MB of memory",
		acknowledged, refused, sum(&o.streamed), inFlight, head, heap/1e6)
	if refused == 0 { // the number depends on the machine
		o.t.Error("nothing was refused: no overload")
	}
	// A batch that is admitted may be as large as the bound of samples in
	// flight.
	if inFlight > inFlightMax+overloadBatch || head > float64(headMax)+inFlightMax*64 || heap > heapMax {
		o.t.Error("a bound is exceeded")
	}
}

// post sends batches as fast as it can.
func (o *overload) post(ctx context.Context, i int) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for n := int64(0); ctx.Err() == nil; {
		var body strings.Builder
		fmt.Fprintf(&body, `[{"name":"over.http%d","tags":{"a":"b"},"datapoints":[`, i)
		for j := range int64(overloadBatch) {
			if j > 0 {
				body.WriteByte(',')
			}
			fmt.Fprintf(&body, "[%d,%d]", firstMS+(n+j)*7919, (n+j)*0x9E3779B1%1_000_003)
		}
		body.WriteString("]}]")
		response, err := client.Post(o.http.URL+"/api/v1/datapoints", "application/json", strings.NewReader(body.String()))
		if err != nil {
			o.t.Error(err)
			return
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		switch response.StatusCode {
		case http.StatusNoContent:
			n += overloadBatch
			o.acknowledged[i].Store(n)
		case http.StatusServiceUnavailable:
			o.refused[i].Add(overloadBatch)
		default:
			o.t.Errorf("status %d", response.StatusCode)
			return
		}
	}
}

// stream sends lines as fast as the server reads them.
func (o *overload) stream(ctx context.Context, i int) {
	conn, err := net.Dial("tcp", o.telnet.Addr().String())
	if err != nil {
		o.t.Error(err)
		return
	}
	defer conn.Close()
	for n := int64(0); ctx.Err() == nil; {
		var lines bytes.Buffer
		for range 100 {
			fmt.Fprintf(&lines, "putm over.telnet%d %d %d a=b\n", i, firstMS+n*7919, n*0x9E3779B1%1_000_003)
			n++
		}
		if _, err := conn.Write(lines.Bytes()); err != nil {
			o.t.Error(err)
			return
		}
		o.streamed[i].Store(n)
	}
}

// metric returns the value of a gauge.
func (o *overload) metric(name string) float64 {
	families, err := o.registry.Gather()
	if err != nil {
		o.t.Error(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	o.t.Errorf("no metric %s", name)
	return 0
}

func countSamples(t *testing.T, s *embedded.Store, metric string) (n int64) {
	t.Helper()
	ctx := context.Background()
	v, err := s.View(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	all, err := storetest.Select(ctx, v, store.Selection{Metric: metric, Range: model.AllTime})
	if err != nil {
		t.Fatal(err)
	}
	for _, series := range all {
		c := v.Read(ctx, series, store.ReadOptions{Range: model.AllTime})
		defer c.Close()
		for {
			b, err := c.Next()
			if err != nil {
				t.Fatal(err)
			}
			if b == nil {
				break
			}
			n += int64(b.Len())
		}
	}
	return n
}
