package query

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The next start finds the queries that were running when the process ended, and no others.
func TestActiveFile(t *testing.T) { synctest.Test(t, testActiveFile) }

func testActiveFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "active-queries")
	log := slog.New(slog.DiscardHandler)
	open := func() (*ActiveFile, []ActiveQuery) {
		t.Helper()
		f, left, err := OpenActiveFile(path, 2, log)
		if err != nil {
			t.Fatal(err)
		}
		return f, left
	}
	f, left := open()
	if len(left) != 0 {
		t.Errorf("%v in a new file", left)
	}
	e := newFixture(t, DefaultConfig())
	e.WriteDown(f)
	var runs []*Session
	for _, text := range []string{"one", strings.Repeat("\x01ä", activeText), "three has no slot"} {
		run, err := e.Begin(context.Background(), Request{Text: text, Client: "c"})
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
		written()
	}
	runs[0].Close(nil)
	again, err := e.Begin(context.Background(), Request{Text: "four"})
	if err != nil {
		t.Fatal(err)
	}
	written()
	runs[2].Close(nil) // takes no slot of another one
	short, err := e.Begin(context.Background(), Request{Text: "short"})
	if err != nil {
		t.Fatal(err)
	}
	short.Close(nil)
	written()
	f.Close() // as a crash leaves it

	f, left = open()
	if len(left) != 2 || left[0].Query != "four" || !strings.HasPrefix(left[1].Query, "\x01ä\x01ä") ||
		len(left[1].Query) > activeText+3 || left[1].Client != "c" || left[0].Start.IsZero() {
		t.Errorf("%+v", left)
	}
	f.Close()
	if f, left = open(); len(left) != 0 {
		t.Errorf("%v were told twice", left)
	}
	f.Close()
	for _, r := range append(runs, again) {
		r.Close(nil)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("x", activeSlot+10)), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, left = open(); len(left) != 0 {
		t.Errorf("%v of a file with other content", left)
	}
	f.Close()
}

// written waits until the queries that run are in the file. It is called in a bubble of synctest.
func written() {
	time.Sleep(activeAfter)
	synctest.Wait()
}

// One timer serves all queries: one that begins while it runs is written down with the next.
func TestActiveFileLooksAgain(t *testing.T) { synctest.Test(t, testLooksAgain) }

func testLooksAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "active-queries")
	f, _, err := OpenActiveFile(path, 3, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var entries []*activeEntry
	for range 3 {
		entries = append(entries, f.begin(time.Now(), time.Now(), &Request{Text: "q"}))
		time.Sleep(activeAfter / 2)
	}
	isWritten := func(e *activeEntry) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return e.slot >= 0
	}
	synctest.Wait()
	for i, want := range []bool{true, false, false} { // 1.5, 1 and 0.5 times activeAfter after they began
		if got := isWritten(entries[i]); got != want {
			t.Errorf("query %d is written down: %v", i, got)
		}
	}
	written()
	for i, e := range entries {
		if !isWritten(e) {
			t.Errorf("query %d is not written down", i)
		}
		e.end()
	}
	if len(f.waiting) != 0 || f.looking {
		t.Errorf("%d queries wait, looking: %v", len(f.waiting), f.looking)
	}
}

// The file names a query that has given its slot up, and the query that has the slot
// meanwhile.
func TestActiveFileNamesQueriesWithoutASlot(t *testing.T) { synctest.Test(t, testWithoutASlot) }

func testWithoutASlot(t *testing.T) {
	config := DefaultConfig()
	config.MaxConcurrent = 1
	path := filepath.Join(t.TempDir(), "active-queries")
	f, _, err := OpenActiveFile(path, config.ActiveSlots(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	e := newFixture(t, config)
	e.WriteDown(f)
	run, err := e.Begin(context.Background(), Request{Text: "its client does not read"})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close(nil)
	var named []ActiveQuery
	err = run.Aside(func() error {
		other, err := e.Begin(context.Background(), Request{Text: "other"})
		if err != nil {
			return err
		}
		defer other.Close(nil)
		written()
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		named, err = readActive(file)
		return err
	})
	if err != nil || len(named) != 2 {
		t.Errorf("%+v, %v", named, err)
	}
}

// The file does not name a query that has ended, also if that was just before it was to be written down, and its
// slot is free again.
func TestActiveFileForgets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "active-queries")
	f, _, err := OpenActiveFile(path, 1, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, endsFirst := range []bool{false, true} {
		e := f.begin(time.Now(), time.Now().Add(-activeAfter), &Request{Text: "q"})
		f.due(time.Now())
		if endsFirst {
			e.end()
			e.write()
		} else {
			e.write()
			e.end()
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if named, err := readActive(file); err != nil || len(named) > 0 || len(f.free) != 1 {
			t.Errorf("ended before it was written down: %v: %d named, %d slots free, %v", endsFirst, len(named), len(f.free), err)
		}
		file.Close()
	}
}
