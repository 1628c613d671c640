package wsp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// A tape holds records of one series in a file, in runs, each of which is in ascending
// time: there is one for each type of the samples.
type tape struct {
	f    *os.File
	buf  *bufio.Writer
	at   int64
	ends []int64 // of the runs
}

// maxRuns bounds the runs of a series. There are two types of numbers.
const maxRuns = 16

func newTape(dir string) (tape, error) {
	f, err := os.CreateTemp(dir, ".varve-export-*")
	if err != nil {
		return tape{}, err
	}
	return tape{f: f, buf: bufio.NewWriterSize(f, 64<<10)}, nil
}

func (t *tape) close() error {
	if t.f == nil {
		return nil
	}
	return errors.Join(t.f.Close(), os.Remove(t.f.Name()))
}

// reset forgets the series before.
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

// endRun ends a run.
func (t *tape) endRun() error {
	if len(t.ends) == maxRuns {
		return fmt.Errorf("the samples are not in ascending time")
	}
	t.ends = append(t.ends, t.at)
	return nil
}

// runs ends the last run, and returns readers of all.
func (t *tape) runs() (all []*bufio.Reader, err error) {
	if err := errors.Join(t.endRun(), t.buf.Flush()); err != nil {
		return nil, err
	}
	from := int64(0)
	for _, end := range t.ends {
		all = append(all, bufio.NewReaderSize(io.NewSectionReader(t.f, from, end-from), 64<<10))
		from = end
	}
	return all, nil
}
