// Package audit records who did what to the server, in a file with a line of JSON for
// each event. The file is rotated by size, and the oldest files are removed.
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

	MaxBytes units.Bytes `tune:"max_bytes" default:"64MiB"` // size at which a file is rotated
	MaxFiles int         `tune:"max_files" default:"8"`     // number of rotated files
}

// DefaultConfig returns the log in the data directory.
func DefaultConfig() Config { return units.Defaults[Config]() }

// None is the value of Config.File that turns the log off.
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
	shares map[sender]*rate.Limiter // by sender, in bytes; see RoomIn
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

// open opens the file if it is not open. l.mu must be held, or no other goroutine may
// have l.
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

// openOwned opens the file. If the file does not exist, it is created with the server's owner,
// even if root runs varve token.
func openOwned(path string) (*os.File, error) {
	if f, err := safefile.CreateOwned(path, os.O_APPEND|os.O_RDWR, 0o600); !errors.Is(err, fs.ErrExist) {
		return f, err
	}
	return os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
}

// cutOff reports whether the last line of a file is incomplete, as after a full disk or a
// crash of the machine. Otherwise the next event would be appended to that line, and neither
// could be read.
func cutOff(f *os.File, size int64) bool {
	var last [1]byte
	_, err := f.ReadAt(last[:], size-1) // fails for an empty file, and for a file that is not a regular one
	return err == nil && last[0] != '\n'
}

// Add writes an event. If the event cannot be written, Add counts it and logs the
// reason. The recorded action, such as a delete, is not undone.
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

// line is an event as a line of JSON. Characters of HTML are not escaped: escapes would
// take six times the space, so that the file would hold fewer events.
func line(e Event) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(e); err != nil {
		panic(err) // texts and times always marshal
	}
	return b.Bytes()
}

// write writes a line with one call, so that it does not mix with lines of other
// processes. l.mu must be held.
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

// moved reports whether the open file is no longer the one at the path: somebody has removed it,
// or a program such as logrotate or varve token has rotated it. Events written to it would be
// lost, or be in a file where nobody looks. l.mu must be held.
func (l *Log) moved() bool {
	there, err := os.Stat(l.path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	own, err := l.file.Stat()
	return err == nil && !os.SameFile(there, own)
}

// turn rotates the files: PATH becomes PATH.1, PATH.1 becomes PATH.2, and so on. Only one process
// at a time does this: otherwise the renames of two processes would mix, and one file could
// overwrite another. Meanwhile other processes continue to write. l.mu must be held.
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
		return nil // another process has the lock; the next event checks again
	}
	defer lock.Close()
	if !l.moved() { // otherwise another process has rotated it since the check
		if err := l.putAside(); err != nil {
			return err
		}
	}
	err = l.file.Close()
	l.file = nil
	return err
}

// putAside renames the files. l.mu and the lock against other processes must be held.
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
