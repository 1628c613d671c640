package ingest_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/units"
)

// readBody reads a request with this body, which announces length bytes.
func readBody(p *ingest.Pipeline, w http.ResponseWriter, src io.Reader, length int64, gzipped bool) (*ingest.Body, error) {
	r := httptest.NewRequest(http.MethodPost, "/", src)
	r.ContentLength = length
	return p.ReadBody(w, r, gzipped)
}

func held(t *testing.T, reg *prometheus.Registry) int {
	t.Helper()
	return int(ingesttest.Counters(t, reg, "varve_ingest_body_bytes")[""])
}

func pack(members ...string) []byte {
	var b bytes.Buffer
	for _, s := range members {
		z := gzip.NewWriter(&b)
		io.WriteString(z, s)
		z.Close()
	}
	return b.Bytes()
}

func TestAnnouncedLengthRefusesAtOnce(t *testing.T) {
	p, reg := ingesttest.NewPipeline(&ingesttest.Recorder{}, func(c *ingest.Config) { c.MaxBodyBytes = 1000 })
	src, _ := io.Pipe() // nothing ever comes
	_, err := readBody(p, httptest.NewRecorder(), src, 1<<40, false)
	if want := "limit bytes of a body of 1000 reached, at least 1099511627776 needed: reading the request body, which may take a quarter of ingest.body_memory; send it in smaller pieces"; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	if n := held(t, reg); n != 0 {
		t.Errorf("%d bytes held", n)
	}
}

// The announced length of a body takes no memory, nor does the unpacked form of a
// body that has not arrived yet.
func TestBodiesThatDoNotComeTakeNoMemory(t *testing.T) {
	p, reg := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
	bomb := pack(strings.Repeat("x", 64<<20))
	const senders = 20
	type sender struct {
		w    *io.PipeWriter
		sent int
	}
	var all []sender
	ends := make(chan error, senders)
	for i := range senders {
		src, w := io.Pipe()
		gzipped := i%2 == 0
		length, first := int64(60<<20), bytes.Repeat([]byte("x"), 3000)
		if gzipped {
			length, first = int64(len(bomb)), bomb[:len(bomb)/2]
		}
		go func() {
			b, err := readBody(p, httptest.NewRecorder(), src, length, gzipped)
			if err == nil {
				b.Release()
			}
			ends <- err
		}()
		w.Write(first) // returns when it was read
		all = append(all, sender{w, len(first)})
	}
	sent := 0
	for _, s := range all {
		sent += s.sent
	}
	if n := held(t, reg); n > 4*sent+senders*4096 {
		t.Errorf("%d bytes held for %d that came", n, sent)
	}
	b, err := readBody(p, httptest.NewRecorder(), strings.NewReader("[]"), 2, false)
	if err != nil {
		t.Fatal(err)
	}
	b.Release()
	for _, s := range all {
		s.w.CloseWithError(io.ErrUnexpectedEOF)
		if err := <-ends; err == nil {
			t.Error("a body that was cut off was taken")
		}
	}
	if n := held(t, reg); n != 0 {
		t.Errorf("%d bytes still held", n)
	}
}

// A body holds at most four times the bytes that have arrived, or twice beyond a mebibyte.
func TestBodiesHoldLittleMoreThanCame(t *testing.T) {
	for _, came := range []int{1, 4 << 10, 5000, 16 << 10, 17_000, 64 << 10, 70_000, 256 << 10, 300_000, 1 << 20, 1_100_000, 3 << 20} {
		synctest.Test(t, func(t *testing.T) {
			p, reg := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
			src, w := io.Pipe()
			end := make(chan error)
			go func() {
				_, err := readBody(p, httptest.NewRecorder(), src, -1, false)
				end <- err
			}()
			w.Write(make([]byte, came))
			synctest.Wait()
			most := 4 * max(came, 1<<10)
			if came >= 1<<20 {
				most = 2 * came
			}
			if n := held(t, reg); n < came || n > most {
				t.Errorf("%d bytes held for %d that came", n, came)
			}
			w.CloseWithError(io.ErrUnexpectedEOF)
			if err := <-end; err == nil {
				t.Error("a body that was cut off was taken")
			}
		})
	}
}

// A body that finds no memory at all is refused after busy_wait.
func TestBodyWithoutRoomIsRefusedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, reg := ingesttest.NewPipeline(&ingesttest.Recorder{}, func(c *ingest.Config) {
			c.BodyMemory, c.MaxBodyBytes, c.MaxUnpackedBytes, c.BusyWait = 64*units.KiB, 64*units.KiB, 64*units.KiB, time.Minute
		})
		for p.NewShare("").Grow(t.Context(), 4<<10) == nil {
		}
		full, began := held(t, reg), time.Now()
		_, err := readBody(p, httptest.NewRecorder(), strings.NewReader("[]"), 2, false)
		if took := time.Since(began); !errors.Is(err, ingest.ErrBusy) || took != time.Minute {
			t.Errorf("after %s: %v", took, err)
		}
		if n := held(t, reg); n != full {
			t.Errorf("%d bytes held, %d before", n, full)
		}
	})
}

// An address whose bodies never end, however many and of whatever size, leaves others room.
func TestSlowBodiesOfOneAddress(t *testing.T) {
	for size, n := range map[int]int{1 << 10: 3000, 200 << 10: 28} { // small ones, and others
		synctest.Test(t, func(t *testing.T) {
			p, reg := ingesttest.NewPipeline(&ingesttest.Recorder{}, func(c *ingest.Config) { c.BodyMemory = 8 * units.MiB })
			read := func(remote string, body io.Reader) error {
				r := httptest.NewRequest(http.MethodPost, "/", body)
				r.RemoteAddr, r.ContentLength = remote, -1
				b, err := p.ReadBody(&deadlines{httptest.NewRecorder()}, r, false)
				if err == nil {
					b.Release()
				}
				return err
			}
			var flood sync.WaitGroup
			var ends []*io.PipeWriter
			for range n {
				body, w := io.Pipe()
				ends = append(ends, w)
				flood.Go(func() { read("127.0.0.2:1", body) })
				flood.Go(func() { w.Write(make([]byte, size)) })
			}
			synctest.Wait()
			full := held(t, reg)
			for _, n := range []int{100, 6 << 10, 100 << 10} {
				if err := read("127.0.0.1:1", bytes.NewReader(make([]byte, n))); err != nil {
					t.Errorf("bodies of %d bytes hold %d: a body of %d bytes from another address: %v", size, full, n, err)
				}
			}
			for _, w := range ends {
				w.CloseWithError(io.ErrUnexpectedEOF)
			}
			flood.Wait()
			if n := held(t, reg); n != 0 {
				t.Errorf("%d bytes are still held", n)
			}
		})
	}
}

// deadlines is a response whose connection takes deadlines.
type deadlines struct{ *httptest.ResponseRecorder }

func (*deadlines) SetReadDeadline(time.Time) error { return nil }

func TestBodyLimitsAreExact(t *testing.T) {
	const most = 100_000
	p, _ := ingesttest.NewPipeline(&ingesttest.Recorder{}, func(c *ingest.Config) { c.MaxBodyBytes, c.MaxUnpackedBytes = most, most })
	for _, gzipped := range []bool{false, true} {
		for _, announced := range []bool{false, true} {
			for n, ok := range map[int]bool{0: true, 1: true, 4096: true, 4097: true, most - 1: true, most: true, most + 1: false, 3 * most: false} {
				text := strings.Repeat("y", n)
				body := []byte(text)
				if gzipped {
					body = pack(text)
				}
				length := int64(-1)
				if announced {
					length = int64(len(body))
				}
				b, err := readBody(p, httptest.NewRecorder(), bytes.NewReader(body), length, gzipped)
				var f *ingest.Fault
				switch {
				case ok && err != nil:
					t.Errorf("%d bytes, gzip %v: %v", n, gzipped, err)
				case ok && string(b.Bytes) != text:
					t.Errorf("%d bytes, gzip %v: read %d", n, gzipped, len(b.Bytes))
				case !ok && (!errors.As(err, &f) || f.Reason != ingest.BodyTooLarge):
					t.Errorf("%d bytes, gzip %v: %v", n, gzipped, err)
				}
				if b != nil {
					b.Release()
				}
			}
		}
	}
}

// A body that is not packed may have no more bytes than an unpacked one, and the fault names the smaller limit.
func TestPlainBodyWithinBothLimits(t *testing.T) {
	for _, c := range []struct {
		body, unpacked units.Bytes
		bytes          int
		want           string // in the fault; empty: none
	}{
		{1000, 100, 100, ""},
		{1000, 100, 101, "limit bytes of an unpacked body of 100 reached"},
		{100, 100, 101, "limit bytes of a body of 100 reached"},
		{100, 1000, 101, "limit bytes of a body of 100 reached"},
	} {
		p, _ := ingesttest.NewPipeline(&ingesttest.Recorder{}, func(cfg *ingest.Config) { cfg.MaxBodyBytes, cfg.MaxUnpackedBytes = c.body, c.unpacked })
		b, err := readBody(p, httptest.NewRecorder(), strings.NewReader(strings.Repeat("y", c.bytes)), -1, false)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%d bytes within %d and %d: %v, want %q", c.bytes, c.body, c.unpacked, err, c.want)
		}
		if b != nil {
			b.Release()
		}
	}
}

// A share that holds more than is asked for keeps what it holds.
func TestShareDoesNotShrink(t *testing.T) {
	p, reg := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
	s := p.NewShare("")
	for _, c := range []struct{ bytes, want int }{{1000, 1000}, {10, 1000}, {1000, 1000}, {1001, 1001}} {
		if err := s.Grow(t.Context(), int64(c.bytes)); err != nil || held(t, reg) != c.want {
			t.Errorf("asked for %d: %d bytes held, want %d, %v", c.bytes, held(t, reg), c.want, err)
		}
	}
	s.Release()
	if n := held(t, reg); n != 0 {
		t.Errorf("%d bytes still held", n)
	}
}

// A request is stored although its client has left, within store_wait.
func TestStoringOutlivesTheClient(t *testing.T) {
	p, _ := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
	left, cancel := context.WithCancel(t.Context())
	cancel()
	ctx, stop := p.StoreContext(httptest.NewRequest(http.MethodPost, "/", nil).WithContext(left))
	defer stop()
	if _, bounded := ctx.Deadline(); ctx.Err() != nil || !bounded {
		t.Errorf("the context has ended: %v, has an end: %v", ctx.Err(), bounded)
	}
}

func TestPackedBodies(t *testing.T) {
	p, reg := ingesttest.NewPipeline(&ingesttest.Recorder{}, func(c *ingest.Config) { c.MaxUnpackedBytes = 1 << 20 })
	good := pack("hello")
	wrongSum := bytes.Clone(good)
	wrongSum[len(wrongSum)-8] ^= 1
	damaged := bytes.Clone(good)
	damaged[10] = 7 // a block of a type that does not exist
	wrongLength := bytes.Clone(good)
	wrongLength[len(wrongLength)-1] ^= 1
	for name, c := range map[string]struct {
		body []byte
		want string // text, or the beginning of the fault after "! "
	}{
		"one member":        {good, "hello"},
		"several members":   {pack("hel", "", "lo"), "hello"},
		"nothing":           {nil, "! Not in GZIP format"},
		"not gzip":          {[]byte("[]"), "! Not in GZIP format"},
		"cut in the header": {good[:5], "! Not in GZIP format"},
		"cut in the data":   {good[:len(good)-10], "! compressed body is damaged"},
		"cut in the sum":    {good[:len(good)-3], "! compressed body is damaged"},
		"wrong sum":         {wrongSum, "! compressed body is damaged"},
		"damaged data":      {damaged, "! compressed body is damaged"},
		"wrong length":      {wrongLength, "! compressed body is damaged"},
		"garbage behind":    {append(bytes.Clone(good), "garbage"...), "! compressed body is damaged"},
		"packed twice":      {pack(string(good)), string(good)},
		"bomb":              {pack(strings.Repeat("0", 100<<20)), "! limit bytes of an unpacked body of 1048576 reached"},
		"bomb of members":   {bytes.Repeat(pack(strings.Repeat("0", 1<<10)), 2000), "! limit bytes of an unpacked body of 1048576 reached"},
	} {
		b, err := readBody(p, httptest.NewRecorder(), bytes.NewReader(c.body), int64(len(c.body)), true)
		if err != nil {
			if want, ok := strings.CutPrefix(c.want, "! "); !ok || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if string(b.Bytes) != c.want {
			t.Errorf("%s: %.20q", name, b.Bytes)
		}
		b.Release()
	}
	if n := held(t, reg); n != 0 {
		t.Errorf("%d bytes still held", n)
	}
}

// A body that finds no memory waits until another one gives memory back.
func TestBodyWaitsForRoomWhileItGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, reg := ingesttest.NewPipeline(&ingesttest.Recorder{}, func(c *ingest.Config) {
			c.BodyMemory, c.MaxBodyBytes, c.MaxUnpackedBytes, c.BusyWait = 300<<10, 300<<10, 300<<10, time.Minute
		})
		first, err := readBody(p, httptest.NewRecorder(), strings.NewReader(strings.Repeat("x", 200<<10)), 200<<10, false)
		if err != nil {
			t.Fatal(err)
		}
		second := make(chan error, 1)
		go func() {
			b, err := readBody(p, httptest.NewRecorder(), strings.NewReader(strings.Repeat("y", 250<<10)), 250<<10, false)
			if err == nil {
				b.Release()
			}
			second <- err
		}()
		synctest.Wait()
		select {
		case err := <-second:
			t.Fatalf("there was no room: %v", err)
		default:
		}
		first.Release()
		if err := <-second; err != nil {
			t.Error(err)
		}
		if n := held(t, reg); n != 0 {
			t.Errorf("%d bytes still held", n)
		}
		if n := ingesttest.Counters(t, reg, "varve_ingest_waits_total")["bodies"]; n != 1 {
			t.Errorf("%v waits counted", n)
		}
	})
}

// A small body does not wait behind large ones, nor does one that has grown keep the
// memory that is for small ones.
func TestSmallBodiesDoNotWaitForLargeOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, reg := ingesttest.NewPipeline(&ingesttest.Recorder{}, func(c *ingest.Config) {
			c.BodyMemory, c.MaxBodyBytes, c.MaxUnpackedBytes, c.BusyWait = 8*units.MiB, 8*units.MiB, 8*units.MiB, time.Minute
		})
		read := func(size int64) (*ingest.Body, error) {
			return readBody(p, httptest.NewRecorder(), strings.NewReader(strings.Repeat("x", int(size))), size, false)
		}
		first, err := read(6 << 20)
		if err != nil {
			t.Fatal(err)
		}
		waiting := make(chan *ingest.Body)
		go func() {
			b, err := read(3 << 20)
			if err != nil {
				t.Error(err)
			}
			waiting <- b
		}()
		synctest.Wait()
		began := time.Now()
		var small []*ingest.Body
		for range 128 { // of 8 KiB, all of the eighth that is kept for them
			b, err := read(4 << 10)
			if err != nil {
				t.Fatal(err)
			}
			small = append(small, b)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("small bodies waited %s", took)
		}
		for _, b := range small {
			b.Release()
		}
		first.Release()
		(<-waiting).Release()
		if n := held(t, reg); n != 0 {
			t.Errorf("%d bytes still held", n)
		}
		if n := ingesttest.Counters(t, reg, "varve_ingest_waits_total")["bodies"]; n != 1 {
			t.Errorf("%v waits counted, want that of the large body", n)
		}
	})
}

// drip is a body of which a first part comes at once, the rest in pieces at a steady rate.
type drip struct {
	piece, left int
	every       time.Duration
	first       int
}

func (d *drip) Read(b []byte) (int, error) {
	if d.left == 0 {
		return 0, io.EOF
	}
	n := min(d.first, len(b))
	d.first -= n
	if n == 0 {
		time.Sleep(d.every)
		n = min(d.piece, d.left, len(b))
	}
	d.left -= n
	return copy(b, bytes.Repeat([]byte("x"), n)), nil
}

func TestSlowBodies(t *testing.T) {
	for _, c := range []struct {
		name   string
		body   drip
		reason ingest.Reason // 0: it is taken
		within time.Duration
	}{
		{"a byte a second", drip{1, 1 << 20, time.Second, 0}, ingest.TooSlow, 11 * time.Second},
		{"just too slow", drip{3 << 10, 1 << 20, time.Second, 0}, ingest.TooSlow, 11 * time.Second},
		{"just quick enough", drip{4 << 10, 1 << 20, time.Second, 0}, 0, 5 * time.Minute},
		{"small and slow", drip{1, 8, time.Second, 0}, 0, 9 * time.Second},
		{"half at once, then a byte a second", drip{1, 1 << 20, time.Second, 512 << 10}, ingest.TooSlow, 11 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, reg := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
				began := time.Now()
				want := c.body.left
				b, err := readBody(p, httptest.NewRecorder(), &c.body, -1, false)
				if took := time.Since(began); took > c.within {
					t.Errorf("took %s", took)
				}
				var f *ingest.Fault
				switch {
				case c.reason == 0 && (err != nil || len(b.Bytes) != want):
					t.Errorf("%v", err)
				case c.reason != 0 && (!errors.As(err, &f) || f.Reason != c.reason || f.HTTPStatus() != http.StatusRequestTimeout):
					t.Errorf("%v", err)
				}
				if b != nil {
					b.Release()
				}
				if n := held(t, reg); n != 0 {
					t.Errorf("%d bytes still held", n)
				}
			})
		})
	}
}

// A silent connection brings no byte before its deadline.
type silent struct {
	http.ResponseWriter
	passed chan struct{}
}

func (s *silent) SetReadDeadline(at time.Time) error {
	if !at.IsZero() {
		close(s.passed)
	}
	return nil
}

func (s *silent) Read([]byte) (int, error) {
	<-s.passed
	return 0, os.ErrDeadlineExceeded
}

func TestSilentBodyIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
		s := &silent{httptest.NewRecorder(), make(chan struct{})}
		began := time.Now()
		_, err := readBody(p, s, s, 10, false)
		var f *ingest.Fault
		if !errors.As(err, &f) || f.Reason != ingest.TooSlow || time.Since(began) != 10*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// The time that a body waits for memory does not count as the sender's.
func TestWaitForRoomIsNotTheSendersFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := ingesttest.NewPipeline(&ingesttest.Recorder{}, func(c *ingest.Config) {
			c.BodyMemory, c.MaxBodyBytes, c.MaxUnpackedBytes, c.BusyWait = 64*units.KiB, 64*units.KiB, 64*units.KiB, time.Minute
		})
		first, err := readBody(p, httptest.NewRecorder(), strings.NewReader(strings.Repeat("x", 40<<10)), 40<<10, false)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(8*time.Second, first.Release)
		second, err := readBody(p, httptest.NewRecorder(), &drip{8 << 10, 40 << 10, time.Second, 0}, 40<<10, false)
		if err != nil {
			t.Fatal(err)
		}
		second.Release()
	})
}
