package wsp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// A tape is a temporary file with the records of one series, in runs of ascending time.
// Each type of the samples begins a run.
type tape struct {
	f    *os.File
	name string // "" if the file has no name
	buf  *bufio.Writer
	at   int64   // bytes written
	ends []int64 // offsets at which the runs end
}

// maxRuns limits the runs of a series. Two would suffice: there are two types of numbers.
const maxRuns = 16

// newTape creates the file and removes its name, so that the file disappears with the process,
// even if that is killed. Windows does not remove open files: there a killed process leaves it.
func newTape(dir string) (tape, error) {
	f, err := os.CreateTemp(dir, ".varve-export-*")
	if err != nil {
		return tape{}, err
	}
	t := tape{f: f, buf: bufio.NewWriterSize(f, 64<<10)}
	if os.Remove(f.Name()) != nil {
		t.name = f.Name()
	}
	return t, nil
}

func (t *tape) close() error {
	if t.f == nil {
		return nil
	}
	err := t.f.Close()
	if t.name != "" {
		err = errors.Join(err, os.Remove(t.name))
	}
	return err
}

// reset empties the tape for the next series.
func (t *tape) reset() error {
	if _, err := t.f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	t.buf.Reset(t.f)
	t.at, t.ends = 0, t.ends[:0]
	return nil
}

func (t *tape) write(record []byte) error {
	_, err := t.buf.Write(record)
	t.at += int64(len(record))
	return err
}

// endRun ends the current run.
func (t *tape) endRun() error {
	if len(t.ends) == maxRuns {
		return fmt.Errorf("the samples are not in ascending time")
	}
	t.ends = append(t.ends, t.at)
	return nil
}

// A run reads the records of a run one by one.
type run[R any] struct {
	r     *bufio.Reader
	bytes []byte // buffer for one record
	parse func([]byte) (R, error)
	next  R
	more  bool // next is valid
}

func (r *run[R]) advance() error {
	_, err := io.ReadFull(r.r, r.bytes)
	if r.more = err == nil; !r.more {
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
	r.next, err = r.parse(r.bytes)
	return err
}

// openRuns ends the last run of a tape, and opens all runs at their first records.
func openRuns[R any](t *tape, recordBytes int, parse func([]byte) (R, error)) (all []*run[R], err error) {
	if err := errors.Join(t.endRun(), t.buf.Flush()); err != nil {
		return nil, err
	}
	from := int64(0)
	for _, end := range t.ends {
		r := &run[R]{r: bufio.NewReaderSize(io.NewSectionReader(t.f, from, end-from), 64<<10), bytes: make([]byte, recordBytes), parse: parse}
		if err := r.advance(); err != nil {
			return nil, err
		}
		all = append(all, r)
		from = end
	}
	return all, nil
}

// earliest returns the run whose next record is first by compare, nil if all runs have
// ended.
func earliest[R any](runs []*run[R], compare func(a, b R) int) (first *run[R]) {
	for _, r := range runs {
		if r.more && (first == nil || compare(r.next, first.next) < 0) {
			first = r
		}
	}
	return first
}
