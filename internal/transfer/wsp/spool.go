package wsp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
)

// A spool holds the samples of one series, the last one of each step, in a file. A
// series has a run for each type of its samples, each in ascending time.
type spool struct {
	f     *os.File
	buf   *bufio.Writer
	at    int64
	ends  []int64 // of the runs
	last  sample  // of the step that is being gathered
	begun bool    // there is such a step
	bytes [sampleBytes]byte
}

// maxRuns bounds the runs of a series. There are two types of numbers.
const maxRuns = 16

func newSpool(dir string) (*spool, error) {
	f, err := os.CreateTemp(dir, ".varve-export-*")
	if err != nil {
		return nil, err
	}
	return &spool{f: f, buf: bufio.NewWriterSize(f, 64<<10)}, nil
}

func (s *spool) close() error { return errors.Join(s.f.Close(), os.Remove(s.f.Name())) }

// reset forgets the series before.
func (s *spool) reset() error {
	if _, err := s.f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	s.buf.Reset(s.f)
	s.at, s.ends, s.begun = 0, s.ends[:0], false
	return nil
}

// add takes the next sample of a run. Of those in a step it keeps the last one.
func (s *spool) add(next sample, stepMS int64) error {
	if s.begun && s.last.ms/stepMS != next.ms/stepMS {
		if err := s.put(); err != nil {
			return err
		}
	}
	s.last, s.begun = next, true
	return nil
}

func (s *spool) put() error {
	_, err := s.buf.Write(s.last.append(s.bytes[:0]))
	s.at += sampleBytes
	s.begun = false
	return err
}

// endRun ends a run.
func (s *spool) endRun() error {
	if s.begun {
		if err := s.put(); err != nil {
			return err
		}
	}
	if len(s.ends) == maxRuns {
		return fmt.Errorf("the samples are not in ascending time")
	}
	s.ends = append(s.ends, s.at)
	return nil
}

// A run is read sample by sample.
type run struct {
	r    *bufio.Reader
	next sample
	more bool
}

func (r *run) advance() error {
	var b [sampleBytes]byte
	_, err := io.ReadFull(r.r, b[:])
	if errors.Is(err, io.EOF) {
		r.more = false
		return nil
	}
	r.more = true
	r.next = sample{int64(binary.LittleEndian.Uint64(b[:])), math.Float64frombits(binary.LittleEndian.Uint64(b[8:]))}
	return err
}

// merge calls yield for the last sample of each step of all runs, in ascending time.
func (s *spool) merge(stepMS int64, yield func(sample) error) error {
	if err := errors.Join(s.endRun(), s.buf.Flush()); err != nil {
		return err
	}
	var runs []*run
	from := int64(0)
	for _, end := range s.ends {
		r := &run{r: bufio.NewReaderSize(io.NewSectionReader(s.f, from, end-from), 64<<10)}
		if err := r.advance(); err != nil {
			return err
		}
		runs, from = append(runs, r), end
	}
	last, begun := sample{}, false
	for {
		r := earliest(runs)
		if r == nil {
			break
		}
		if begun && last.ms/stepMS != r.next.ms/stepMS {
			if err := yield(last); err != nil {
				return err
			}
		}
		last, begun = r.next, true
		if err := r.advance(); err != nil {
			return err
		}
	}
	if !begun {
		return nil
	}
	return yield(last)
}

// earliest returns the run whose next sample comes first, nil if all are at their ends.
func earliest(runs []*run) (first *run) {
	for _, r := range runs {
		if r.more && (first == nil || r.next.ms < first.next.ms) {
			first = r
		}
	}
	return first
}
