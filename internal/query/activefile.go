package query

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// An ActiveFile lists the queries that have run for activeAfter in a file, so that after a
// crash the next start can log which queries were running. The file survives a crash of
// the process, but not of the machine: it is never synced.
//
// It has slots of activeSlot bytes, one for each query. A slot begins with a line of
// JSON, or with a blank while it is free. The bytes after that are left over from
// earlier queries.
type ActiveFile struct {
	file *os.File
	log  *slog.Logger
	warn sync.Once

	mu      sync.Mutex
	free    []int                     // slots
	waiting map[*activeEntry]struct{} // queries that are not in the file yet
	looking bool                      // look will be called
}

// An ActiveQuery is what a slot holds.
type ActiveQuery struct {
	Start  time.Time `json:"start"`
	Client string    `json:"client"`
	Query  string    `json:"query"` // cut at activeText bytes
}

// activeAfter is how long a query runs before it is recorded, and the interval between checks of
// the running queries. Recording each short query would cost about 7 % of its CPU time, and a
// query that exhausts the memory runs for longer than this. A timer for each query would cost as
// much, because setting the timer that fires first wakes a thread.
const activeAfter = 10 * time.Millisecond

const (
	activeSlot = 4096
	activeText = activeSlot / 8 // JSON may write a byte as six
)

// OpenActiveFile opens or creates the file with slots for this many queries, and
// returns the queries that an earlier process left in it. While all slots are taken,
// further queries are not listed. Only one process may have the file open.
func OpenActiveFile(path string, slots int, log *slog.Logger) (*ActiveFile, []ActiveQuery, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("open the list of active queries: %w", err)
	}
	left, err := readActive(file)
	if err == nil {
		err = file.Truncate(0)
	}
	if err == nil {
		err = file.Truncate(int64(slots) * activeSlot)
	}
	if err != nil {
		file.Close()
		return nil, nil, fmt.Errorf("read the list of active queries: %w", err)
	}
	f := &ActiveFile{file: file, log: log, waiting: map[*activeEntry]struct{}{}}
	for i := range slots {
		f.free = append(f.free, slots-1-i)
	}
	return f, left, nil
}

// readActive returns the queries in the slots, without those that were not written
// completely.
func readActive(r io.Reader) ([]ActiveQuery, error) {
	var left []ActiveQuery
	slot := make([]byte, activeSlot)
	for {
		_, err := io.ReadFull(r, slot)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return left, nil
		}
		if err != nil {
			return nil, err
		}
		var q ActiveQuery
		if json.NewDecoder(bytes.NewReader(slot)).Decode(&q) == nil {
			left = append(left, q)
		}
	}
}

type activeEntry struct {
	file  *ActiveFile
	query ActiveQuery // with the whole Query
	begun time.Time

	ended bool // under file.mu
	slot  int  // -1 while it is not written down
}

// begin makes look write a query down if it does not end soon.
func (f *ActiveFile) begin(start, begun time.Time, q *Request) *activeEntry {
	e := &activeEntry{file: f, query: ActiveQuery{start.UTC(), q.Client, q.Text}, begun: begun, slot: -1}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting[e] = struct{}{}
	f.lookLaterLocked()
	return e
}

func (f *ActiveFile) lookLaterLocked() {
	if !f.looking && len(f.waiting) > 0 {
		f.looking = true
		time.AfterFunc(activeAfter, f.look)
	}
}

// look writes down the queries that have run for activeAfter.
func (f *ActiveFile) look() {
	for _, e := range f.due(time.Now()) {
		e.write()
	}
}

// due removes these queries from the waiting ones and returns them.
func (f *ActiveFile) due(now time.Time) (due []*activeEntry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looking = false
	for e := range f.waiting {
		if now.Sub(e.begun) >= activeAfter {
			due = append(due, e)
			delete(f.waiting, e)
		}
	}
	f.lookLaterLocked()
	return due
}

// write writes the query down, if there is a slot for it.
func (e *activeEntry) write() {
	f := e.file
	if text := e.query.Query; len(text) > activeText {
		e.query.Query = strings.ToValidUTF8(text[:activeText], "") + "..."
	}
	line, err := json.Marshal(e.query)
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.ended || err != nil || len(line) >= activeSlot || len(f.free) == 0 {
		return
	}
	e.slot = f.free[len(f.free)-1]
	f.free = f.free[:len(f.free)-1]
	f.write(e.slot, append(line, '\n'))
}

// end forgets the query.
func (e *activeEntry) end() {
	f := e.file
	f.mu.Lock()
	defer f.mu.Unlock()
	e.ended = true
	delete(f.waiting, e)
	if e.slot >= 0 {
		f.write(e.slot, blank)
		f.free = append(f.free, e.slot)
	}
}

var blank = []byte{' '}

// write overwrites a slot from its beginning. It copies to the system's memory, which takes a
// microsecond or two, so f.mu may be held.
func (f *ActiveFile) write(slot int, line []byte) {
	if _, err := f.file.WriteAt(line, int64(slot)*activeSlot); err != nil {
		f.warn.Do(func() {
			f.log.Warn("cannot record active queries; after a crash, the log will not name the queries that were running", "error", err)
		})
	}
}

// Close closes the file. No query may run any more.
func (f *ActiveFile) Close() error { return f.file.Close() }

// WriteDown makes an Engine note its queries in a file. It is called before the
// first query.
func (e *Engine) WriteDown(f *ActiveFile) { e.active = f }
