package audit

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestTwoProcesses: a server and varve token put the file aside at the same time. No event is
// lost, none is there twice, and each line is whole.
func TestTwoProcesses(t *testing.T) {
	const writers, events = 8, 400
	path := filepath.Join(t.TempDir(), "audit.log")
	c := Config{MaxBytes: 2 << 10, MaxFiles: 2000}
	var all sync.WaitGroup
	for process := range 2 {
		l := open(t, path, c)
		for writer := range writers {
			all.Go(func() {
				for i := range events {
					l.Add(Event{Time: time.Unix(int64(i), 0), Action: fmt.Sprint(process, "/", writer, "/", i)})
				}
			})
		}
	}
	all.Wait()
	seen := map[string]int{}
	files, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if filepath.Ext(file) == ".lock" {
			continue
		}
		for _, e := range lines(t, file) {
			seen[e.Action]++
		}
	}
	lost := 0
	for process := range 2 {
		for writer := range writers {
			for i := range events {
				if n := seen[fmt.Sprint(process, "/", writer, "/", i)]; n == 0 {
					lost++
				} else if n > 1 {
					t.Errorf("event %d/%d/%d is there %d times", process, writer, i, n)
				}
			}
		}
	}
	if lost > 0 || len(files) < 10 {
		t.Errorf("%d of %d events are lost, in %d files", lost, 2*writers*events, len(files))
	}
}

// A file that cannot be put aside keeps growing, and the server's log says so. Only a lock that another
// process holds is left to it without a word.
func TestFileThatCannotBePutAside(t *testing.T) {
	dir := t.TempDir()
	short, long := filepath.Join(dir, "audit.log"), filepath.Join(dir, strings.Repeat("x", 255-len(".loc")))
	for name, test := range map[string]struct{ path, directory string }{
		"the lock cannot be opened":  {short, short + ".lock"},
		"the lock cannot be created": {long, ""}, // the name is too long
		"a file cannot be renamed":   {filepath.Join(dir, "below", "audit.log"), filepath.Join(dir, "below", "audit.log.1")},
	} {
		t.Run(name, func(t *testing.T) {
			if test.directory != "" {
				if err := os.MkdirAll(test.directory, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			l := open(t, test.path, Config{MaxBytes: 100, MaxFiles: 1})
			var log bytes.Buffer
			l.log = slog.New(slog.NewTextHandler(&log, nil))
			for range 2 {
				l.Add(Event{Action: "event", Detail: strings.Repeat("x", 100)})
			}
			if events := lines(t, test.path); len(events) != 2 || !strings.Contains(log.String(), "cannot rotate the audit log; it keeps growing") {
				t.Errorf("%d events, and the server's log has %q", len(events), log.String())
			}
		})
	}
}
