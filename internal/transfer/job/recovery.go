package job

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"
)

// A recovery is KairosDB's recovery file: the names of finished metrics, one a
// line. A name is written after the points of its metric are on disk.
type recovery struct {
	f       *os.File  // nil if there is none
	own     io.Closer // the lock of f
	done    map[string]bool
	whole   int64 // bytes of f that are complete lines
	pending []byte
	flushed time.Time
}

// openRecovery opens and locks the file at path. output is the file of the export.
func openRecovery(path, output string) (*recovery, error) {
	r := &recovery{done: map[string]bool{}, flushed: time.Now()}
	if path == "" {
		return r, nil
	}
	var err error
	if r.f, err = os.OpenFile(filepath.Clean(path), os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	if err := r.begin(path, output); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// begin locks the file, because the names of another export in it would make this one skip metrics. Then
// it reads the file.
func (r *recovery) begin(path, output string) error {
	own, err := r.f.Stat()
	if err != nil {
		return err
	}
	if other, err := os.Stat(output); err == nil && os.SameFile(own, other) {
		return fmt.Errorf("%s is both the output (-f) and the recovery file (-r): give two files; nothing was changed", output)
	}
	if !own.Mode().IsRegular() {
		return fmt.Errorf("the recovery file (-r) %s is not a regular file", path)
	}
	if r.own, err = lockFile(path, "name another file with -r"); err != nil {
		return err
	}
	if r.whole, err = r.read(r.f); err != nil {
		return fmt.Errorf("read the recovery file (-r) %s: %w", path, err)
	}
	return nil
}

// read reads the names in f and returns the length of its complete lines. The caller truncates the
// rest, so read refuses a file that is not a list of names, such as an export given by mistake.
func (r *recovery) read(f *os.File) (whole int64, err error) {
	in := bufio.NewReader(f)
	head, err := in.Peek(len(exportHead))
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if string(head) == exportHead || bytes.HasPrefix(head, []byte(gzipMagic)) {
		return 0, errors.New("it is an export, not a list of finished metrics; nothing was changed")
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return 0, err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1] // the last name may be incomplete
	if !utf8.Valid(text) {
		return 0, errors.New("it is not a list of metrics, one a line; nothing was changed")
	}
	for name := range strings.Lines(string(text)) {
		r.done[strings.TrimRight(name, "\r\n")] = true
	}
	return int64(len(text)), nil
}

// mend truncates a name that an interruption left incomplete. It must be called after the export's file is
// opened.
func (r *recovery) mend() error {
	if r.f == nil {
		return nil
	}
	if _, err := r.f.Seek(r.whole, io.SeekStart); err != nil {
		return err
	}
	return r.f.Truncate(r.whole)
}

// recoveryEvery is how often the names of finished metrics are written.
const recoveryEvery = time.Second

// note records a finished metric. It omits a name that contains a line break; a
// resumed export writes such a metric again.
func (r *recovery) note(name string, out *exportFile) error {
	if r.f == nil || strings.ContainsAny(name, "\r\n") {
		return nil
	}
	r.pending = append(append(r.pending, name...), '\n')
	if time.Since(r.flushed) < recoveryEvery {
		return nil
	}
	return r.flush(out)
}

func (r *recovery) flush(out *exportFile) error {
	if len(r.pending) == 0 {
		return nil
	}
	if err := out.sync(); err != nil {
		return err
	}
	_, err := r.f.Write(r.pending)
	r.pending, r.flushed = r.pending[:0], time.Now()
	return err
}

func (r *recovery) close() error {
	if r.f == nil {
		return nil
	}
	err := r.f.Close()
	if r.own != nil {
		err = errors.Join(err, r.own.Close())
	}
	return err
}
