package job

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A recovery is KairosDB's recovery file: the names of finished metrics, one a
// line. A name is written once the points of its metric are on disk.
type recovery struct {
	f       *os.File // nil if there is none
	done    map[string]bool
	pending []byte
	flushed time.Time
}

func openRecovery(path string) (*recovery, error) {
	r := &recovery{done: map[string]bool{}, flushed: time.Now()}
	if path == "" {
		return r, nil
	}
	f, err := os.OpenFile(filepath.Clean(path), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read %s: %w", path, err), f.Close())
	}
	whole := bytes.LastIndexByte(text, '\n') + 1 // a name may have been cut
	for name := range strings.Lines(string(text[:whole])) {
		r.done[strings.TrimRight(name, "\r\n")] = true
	}
	if _, err := f.Seek(int64(whole), io.SeekStart); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r.f = f
	return r, f.Truncate(int64(whole))
}

// recoveryEvery is how often the names of finished metrics are written.
const recoveryEvery = time.Second

// note records a finished metric. A name that breaks lines is left out; a resumed
// export writes its metric again.
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
	return r.f.Close()
}
