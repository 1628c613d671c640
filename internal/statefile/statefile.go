// Package statefile stores the progress of a long command, so that it can be interrupted and
// resumed, and writes a report of what the command left out.
package statefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/safefile"
)

// Read reads the state that an interrupted command left. found is false if there is none.
func Read(path string, into any) (found bool, err error) {
	if err := checkRegular(path); err != nil {
		return false, err
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := safefile.CheckSeal(text); err != nil {
		return false, fmt.Errorf("%s: %w; remove it to begin again, or name another file with --state", path, err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return false, fmt.Errorf("%s is not the state of this command; remove it to begin again, or name another file with --state: %w", path, err)
	}
	return true, nil
}

// checkRegular returns an error if something other than a regular file is at path: opening a FIFO
// would wait for a process at its other end.
func checkRegular(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file; name another one with --state and --rejected", path)
	}
	return nil // if Stat failed, opening the file fails too, or there is none
}

// Write writes a state, an object, durably. It replaces the file atomically, so the file is always complete.
func Write(path string, state any) error {
	return safefile.ReplaceObject(vfs.Default, path, state)
}

// Lock keeps other commands from using the file at path until the lock is closed: two commands would
// overwrite what the other one writes. instead says how to use another file.
func Lock(path, instead string) (io.Closer, error) {
	path += lockSuffix
	lock, err := vfs.Default.Lock(path)
	switch {
	case err == nil:
		return lockFile{lock, path}, nil
	case errors.As(err, new(*fs.PathError)):
		return nil, fmt.Errorf("%w; %s", err, instead)
	}
	return nil, fmt.Errorf("%s is locked (%w): another command is using the file; wait until it has ended, or %s", path, err, instead)
}

const lockSuffix = ".lock"

type lockFile struct {
	io.Closer
	path string
}

// Close removes the file first, while nobody else has the lock.
func (l lockFile) Close() error {
	return errors.Join(Remove(l.path), l.Closer.Close())
}

// Remove removes a file. It is no error if the file does not exist.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// A Report is a file that lists what a command left out. A command that is resumed from a state
// overwrites the lines that were written after that state.
type Report struct {
	Path string
	At   int64    // bytes written so far
	f    *os.File // nil before the first text
}

// Lines returns the lines that an earlier command has reported. Add continues after them.
func (r *Report) Lines() (lines map[string]bool, err error) {
	if err := checkRegular(r.Path); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(r.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	r.At = int64(bytes.LastIndexByte(text, '\n') + 1) // the last line may be incomplete
	lines = map[string]bool{}
	for line := range strings.Lines(string(text[:r.At])) {
		lines[line] = true
	}
	return lines, nil
}

// Add appends a text.
func (r *Report) Add(text string) error {
	if r.f == nil {
		if err := checkRegular(r.Path); err != nil {
			return err
		}
		f, err := os.OpenFile(r.Path, os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		r.f = f
		if err := f.Truncate(r.At); err != nil {
			return err
		}
		if _, err := f.Seek(r.At, io.SeekStart); err != nil {
			return err
		}
	}
	n, err := r.f.WriteString(text)
	r.At += int64(n)
	return err
}

// Close closes the file. There is none if nothing was reported.
func (r *Report) Close() error {
	if r.f == nil {
		return nil
	}
	return r.f.Close()
}
