// Package audit writes down who did what to the server: a file of its own, a line of JSON
// for each event. The file is put aside by size, and the oldest ones are removed.
package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"varve/internal/clip"
	"varve/internal/collectors"
	"varve/internal/safefile"
	"varve/internal/units"
)

// Config are the settings of the audit log.
type Config struct {
	File string `yaml:"file" doc:"File with one line of JSON for each delete, export, backup, change of roll-ups or metadata, created or revoked token, and request that was refused for lack of the role admin. Each line says who did what. none turns the audit log off. Empty: audit.log in data_dir."`

	MaxBytes units.Bytes `tune:"max_bytes" default:"64MiB"` // of a file, before it is put aside
	MaxFiles int         `tune:"max_files" default:"8"`     // that were put aside
}

// DefaultConfig returns the log in the data directory.
func DefaultConfig() Config { return units.Defaults[Config]() }

// None as Config.File turns the log off.
const None = "none"

// Path is where the log is, "" if it is off.
func (c Config) Path(dataDir string) string {
	switch c.File {
	case None:
		return ""
	case "":
		return filepath.Join(dataDir, "audit.log")
	}
	return c.File
}

// An Event is a line of the log. Texts of senders are clipped.
type Event struct {
	Time   time.Time `json:"time"`
	Sender string    `json:"sender,omitempty"`
	By     string    `json:"by,omitempty"` // how the sender is known
	Tenant string    `json:"tenant,omitempty"`
	Remote string    `json:"remote,omitempty"`
	Action string    `json:"action"` // method and route, or a command
	Path   string    `json:"path,omitempty"`
	Query  string    `json:"query,omitempty"`
	Body   string    `json:"body,omitempty"`
	Status int       `json:"status,omitempty"`
	Detail string    `json:"detail,omitempty"`
}

// maxText bounds each text of an event.
const maxText = 4096

func (e *Event) clip() {
	for _, text := range []*string{&e.Sender, &e.Tenant, &e.Path, &e.Query, &e.Body, &e.Detail} {
		*text = clip.Text(*text, maxText)
	}
}

// A Log is the file. All methods may be called by many goroutines at once. A nil Log
// writes nothing.
type Log struct {
	path   string
	c      Config
	log    *slog.Logger
	failed prometheus.Counter
	held   prometheus.Counter

	mu     sync.Mutex
	file   *os.File // nil after a failure, until the next event
	size   int64
	shares map[sender]*rate.Limiter // of senders, in bytes; see RoomIn
}

// Open opens the log. It returns nil if the log is off.
func Open(path string, c Config, r prometheus.Registerer, log *slog.Logger) (*Log, error) {
	if path == "" {
		return nil, nil
	}
	set := collectors.Named("varve_audit_")
	l := &Log{path: path, c: c, log: log, shares: map[sender]*rate.Limiter{},
		failed: set.Counter("failed_total", "Events that could not be written to the audit log. The server's log has the reason."),
		held:   set.Counter("held_back_total", "Requests refused because their sender had filled its share of the audit log."),
	}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("audit log: %w (set audit.file to another path, or to %s)", err, None)
	}
	set.MustRegister(r)
	return l, nil
}

// open opens the file if it is not open. l.mu must be held, or l be known to nobody else.
func (l *Log) open() error {
	if l.file != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(l.path), 0o750); err != nil {
		return err
	}
	f, err := openOwned(l.path)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	size := info.Size()
	if cutOff(f, size) {
		n, err := f.Write([]byte{'\n'})
		if err != nil {
			return errors.Join(err, f.Close())
		}
		size += int64(n)
	}
	l.file, l.size = f, size
	return nil
}

// openOwned opens the file. If it is not there, it is created for the server, although root may
// be the one that runs varve token.
func openOwned(path string) (*os.File, error) {
	if f, err := safefile.CreateOwned(path, os.O_APPEND|os.O_RDWR, 0o600); !errors.Is(err, fs.ErrExist) {
		return f, err
	}
	return os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
}

// cutOff reports whether the last line of a file has no end, as after a full disk or a crash
// of the machine: the next event would be part of that line, and unreadable with it.
func cutOff(f *os.File, size int64) bool {
	var last [1]byte
	_, err := f.ReadAt(last[:], size-1) // fails for an empty file, and for one that is no regular file
	return err == nil && last[0] != '\n'
}

// Add writes an event. One that cannot be written is counted, and the server's log says
// why: a delete is not undone by that.
func (l *Log) Add(e Event) {
	if l == nil {
		return
	}
	e.clip()
	text := line(e)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.chargeLocked(sender{e.By, e.Sender}, len(text), e.Time)
	if err := l.write(text); err != nil {
		l.failed.Inc()
		l.log.Error("cannot write an event to the audit log", "error", err, "event", string(text))
	}
}

// line is an event as a line of JSON. Characters of HTML stay as they are: escaped, they
// take six times the room, and the file holds fewer events.
func line(e Event) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(e); err != nil {
		panic(err) // texts and times always marshal
	}
	return b.Bytes()
}

// write writes a line, by one call, so that lines of other processes do not mix with it.
// l.mu must be held.
func (l *Log) write(line []byte) error {
	if l.file != nil && l.moved() {
		l.file.Close()
		l.file = nil
	}
	if err := l.open(); err != nil {
		return err
	}
	if l.size > 0 && l.size+int64(len(line)) > int64(l.c.MaxBytes) {
		if err := l.turn(); err != nil {
			l.log.Error("cannot rotate the audit log; it keeps growing", "error", err)
		}
	}
	if err := l.open(); err != nil {
		return err
	}
	n, err := l.file.Write(line)
	l.size += int64(n)
	if err != nil {
		l.file.Close()
		l.file = nil
	}
	return err
}

// moved reports whether the file is not that of the path any more, since somebody has removed it
// or a program such as logrotate or varve token has put it aside. Events written to it would be
// lost, or be where nobody looks. l.mu must be held.
func (l *Log) moved() bool {
	there, err := os.Stat(l.path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	own, err := l.file.Stat()
	return err == nil && !os.SameFile(there, own)
}

// turn puts the file aside as PATH.1, that as PATH.2, and so on. Of two processes one does: their
// steps would mix, and one file be put over another. The other one writes on meanwhile. l.mu must
// be held.
func (l *Log) turn() error {
	lockPath := l.path + ".lock"
	if f, err := safefile.CreateOwned(lockPath, os.O_WRONLY, 0o600); err == nil {
		_ = f.Close()
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	lock, err := vfs.Default.Lock(lockPath)
	if errors.As(err, new(*fs.PathError)) { // the lock file cannot be opened
		return err
	}
	if err != nil {
		return nil // the other one has it; the next event looks again
	}
	defer lock.Close()
	if !l.moved() { // else the other one has put it aside since it was looked at
		if err := l.putAside(); err != nil {
			return err
		}
	}
	err = l.file.Close()
	l.file = nil
	return err
}

// putAside renames the files. l.mu must be held, and the lock that other processes have.
func (l *Log) putAside() error {
	aside := func(n int) string { return fmt.Sprintf("%s.%d", l.path, n) }
	for n := l.c.MaxFiles; n > 0; n-- {
		from := aside(n - 1)
		if n == 1 {
			from = l.path
		}
		if err := os.Rename(from, aside(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Close closes the file.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}
