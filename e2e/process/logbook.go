package process

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

// A Logbook reads the standard error of a server and evaluates the lines of its
// log.
type Logbook struct {
	mu      sync.Mutex
	partial []byte
	lines   []string // the last ones
	counts  map[string]int
	watches map[string][]chan struct{}
	faults  []string // warnings, errors, and lines that are not in the form of the log
}

// keptLines bounds the lines that are kept for the report of a failure.
const keptLines = 200

func newLogbook() *Logbook {
	return &Logbook{counts: make(map[string]int), watches: make(map[string][]chan struct{})}
}

// Write reads a piece of the log.
func (l *Logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partial = append(l.partial, b...)
	for {
		i := bytes.IndexByte(l.partial, '\n')
		if i < 0 {
			return len(b), nil
		}
		l.line(string(l.partial[:i]))
		l.partial = l.partial[i+1:]
	}
}

func (l *Logbook) line(line string) {
	if strings.Contains(line, "level=DEBUG") && (strings.Contains(line, "msg=request ") || strings.Contains(line, `msg="catalogue: `)) {
		return // too many to keep
	}
	if len(l.lines) == keptLines {
		l.lines = slices.Delete(l.lines, 0, keptLines/2)
	}
	l.lines = append(l.lines, line)
	if !strings.Contains(line, "level=DEBUG") && !strings.Contains(line, "level=INFO") {
		l.faults = append(l.faults, line)
	}
	message := messageOf(line)
	l.counts[message]++
	for _, w := range l.watches[message] {
		close(w)
	}
	delete(l.watches, message)
}

// messageOf returns the message of a line of the log in its text form.
func messageOf(line string) string {
	if _, rest, ok := strings.Cut(line, ` msg="`); ok {
		message, _, _ := strings.Cut(rest, `"`)
		return message
	}
	_, rest, _ := strings.Cut(line, " msg=")
	message, _, _ := strings.Cut(rest, " ")
	return message
}

// Next returns a channel that is closed when message is logged from now on.
func (l *Logbook) Next(message string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := make(chan struct{})
	l.watches[message] = append(l.watches[message], w)
	return w
}

// Count returns how often message was logged.
func (l *Logbook) Count(message string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[message]
}

// Fault returns the first line that should not be in the log of a healthy
// server, "" if there is none.
func (l *Logbook) Fault() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.faults) == 0 {
		return ""
	}
	return l.faults[0]
}

// Attribute returns the value of key in the last line with message.
func (l *Logbook) Attribute(message, key string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range slices.Backward(l.lines) {
		if !strings.Contains(line, message) {
			continue
		}
		_, rest, _ := strings.Cut(line, " "+key+"=")
		value, _, _ := strings.Cut(rest, " ")
		return value
	}
	return ""
}

// Tail returns the last lines.
func (l *Logbook) Tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines[max(0, len(l.lines)-60):], "\n") + string(l.partial)
}
