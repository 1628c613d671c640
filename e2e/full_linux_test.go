package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"varve/e2e/process"
)

const (
	smallDiskBytes = 96 << 20
	recoverWithin  = 15 * time.Second // from free space to the first write
)

// smallDisk mounts a small file system and returns its directory.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", smallDiskBytes)); err != nil {
		t.Skipf("A FULL DISK IS NOT TESTED: mounting a small file system takes root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// A ballast is a file that uses up disk space.
type ballast struct {
	t    *testing.T
	path string
}

// fill uses up all space except leave bytes.
func (b ballast) fill(leave int64) {
	b.t.Helper()
	f, err := os.Create(b.path)
	if err != nil {
		b.t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 1<<20); len(block) > 0; {
		var disk syscall.Statfs_t
		if err := syscall.Statfs(b.path, &disk); err != nil {
			b.t.Fatal(err)
		}
		block = block[:max(0, min(int64(len(block)), int64(disk.Bavail)*disk.Bsize-leave))]
		if _, err := f.Write(block); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				b.t.Fatal(err)
			}
			block = block[:len(block)/2] // another process took the space first
		}
	}
}

func (b ballast) remove() {
	b.t.Helper()
	if err := os.Remove(b.path); err != nil {
		b.t.Fatal(err)
	}
}

// TestFullDisk fills the disk under load, once up to the reserve and once to the
// last byte. Writers are refused or delayed, and get the reason. Queries
// continue. When there is space again, writes are accepted within seconds,
// without a restart if the reserve was not used up. No acknowledged point is
// lost.
func TestFullDisk(t *testing.T) {
	process.SkipShort(t)
	for _, c := range []struct {
		name    string
		leave   int64
		mayStop bool // the catalogue may need space at that moment, and end the server
	}{
		{"up to the reserve", 6 << 20, false},
		{"to the last byte", 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk := smallDisk(t)
			f := &fullDisk{t: t, dir: filepath.Join(disk, "data"), ballast: ballast{t, filepath.Join(disk, "ballast")}}
			for i := range 3 {
				f.writers = append(f.writers, newWriter(i, false, uint64(i)))
			}
			f.telnet = newWriter(3, true, 3)
			f.round(c.leave, c.mayStop)
		})
	}
}

type fullDisk struct {
	t       *testing.T
	dir     string
	ballast ballast
	writers []*writer
	telnet  *writer
	server  *process.Server
}

func (f *fullDisk) start() {
	f.t.Helper()
	f.server = process.Start(f.t, f.dir, "--embedded-min-free-bytes=8MiB", "--tune=embedded.log.segment_bytes=1MiB",
		"--tune=embedded.head_bytes=2MiB", "--embedded-head-bytes-max=8MiB", "--tune=embedded.checkpoint_samples=40000", "--tune=embedded.merge_files=2")
	for _, w := range append(f.writers, f.telnet) {
		w.server = f.server
	}
}

func (f *fullDisk) round(leave int64, mayStop bool) {
	t := f.t
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	f.start()
	filled := make(chan struct{})
	time.AfterFunc(time.Second, func() {
		defer close(filled)
		f.ballast.fill(leave)
	})
	ends := f.writeUntilRefused(ctx)
	<-filled // the last writer may be refused before the disk is full
	select {
	case <-f.server.Exited:
		if !mayStop || !strings.Contains(f.server.Log.Tail(), "fix the disk, then restart the server") {
			t.Fatalf("the server ended: %v\n%s", f.server.Err, f.server.Log.Tail())
		}
		t.Log("the catalogue was about to be written, and the server ended with a message")
		f.ballast.remove()
		f.start()
	default:
		f.whileFull(ctx, ends)
	}
	began := time.Now()
	for _, w := range f.writers {
		f.writeAgain(ctx, w)
	}
	t.Logf("writes are taken again %v after there is space", time.Since(began).Round(time.Millisecond))
	if err := f.telnet.barrier(ctx); err != nil {
		t.Errorf("lines that were held back: %v", err)
	}
	f.server.Kill()
	f.telnet.hangUp()

	f.start()
	points := 0
	for _, w := range append(f.writers, f.telnet) {
		if err := w.check(ctx); err != nil {
			t.Errorf("after a restart: %v", err)
		}
		points += w.ledger.count()
	}
	t.Logf("%d points are there", points)
	f.server.Stop(t)
}

// writeUntilRefused writes until every writer has got an error.
func (f *fullDisk) writeUntilRefused(ctx context.Context) []error {
	ends := make([]error, len(f.writers))
	var wg sync.WaitGroup
	for i, w := range f.writers {
		wg.Go(func() {
			for ends[i] == nil {
				end := len(w.ledger.beliefs)
				ends[i] = w.post(ctx, span{end, end + 500})
			}
		})
	}
	wg.Wait()
	return ends
}

// whileFull checks the behaviour of the server, and frees space.
func (f *fullDisk) whileFull(ctx context.Context, ends []error) {
	t := f.t
	for _, err := range ends {
		if status := (*process.StatusError)(nil); !errors.As(err, &status) || status.Got != http.StatusServiceUnavailable {
			t.Errorf("a write to a full disk: %v, want 503", err)
		}
	}
	response, err := f.server.Client.Post("http://"+f.server.HTTP+"/api/v1/datapoints", "application/json",
		strings.NewReader(`[{"name":"e2e.refused","tags":{"a":"b"},"datapoints":[[1700000000000,1]]}]`))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || response.StatusCode != http.StatusServiceUnavailable || len(body) > 0 || response.Header.Get("Retry-After") == "" {
		t.Errorf("a write to a full disk: status %d, Retry-After %q, body %q (%v)", response.StatusCode, response.Header.Get("Retry-After"), body, err)
	}
	health, err := f.server.Want(ctx, http.StatusOK, "GET", "/api/v1/health/status", "")
	if err != nil || !strings.Contains(string(health), "Datastore-Write: FAIL") {
		t.Errorf("health of a full disk: %s (%v)", health, err)
	}
	if err := f.telnet.stream(ctx, span{0, 2000}); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Logf("telnet: %v", err)
	}
	for _, w := range f.writers {
		// Refused points may be visible now and missing after a restart.
		before := slices.Clone(w.ledger.beliefs)
		if err := w.check(ctx); err != nil {
			t.Errorf("a query on a full disk: %v", err)
		}
		w.ledger.beliefs = before
	}
	f.ballast.remove()
}

// writeAgain sends the refused points until they are accepted.
func (f *fullDisk) writeAgain(ctx context.Context, w *writer) {
	f.t.Helper()
	end := len(w.ledger.beliefs)
	open := span{max(0, end-500), end}
	limit := time.Now().Add(recoverWithin)
	for {
		err := w.postNow(ctx, open)
		if err == nil {
			w.ledger.sent(open)
			return
		}
		if time.Now().After(limit) || ctx.Err() != nil {
			f.t.Fatalf("no write %v after there is space: %v\n%s", recoverWithin, err, f.server.Log.Tail())
		}
		time.Sleep(50 * time.Millisecond)
	}
}
