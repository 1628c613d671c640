package wsp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"math"
)

// A spool holds the samples of one series, the last one of each step.
type spool struct {
	tape
	last  sample // of the step that is being gathered
	begun bool   // there is such a step
	bytes [sampleBytes]byte
}

func newSpool(dir string) (*spool, error) {
	t, err := newTape(dir)
	return &spool{tape: t}, err
}

// reset forgets the series before.
func (s *spool) reset() error {
	s.begun = false
	return s.tape.reset()
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
	s.begun = false
	return s.write(s.last.append(s.bytes[:0]))
}

// endRun ends a run.
func (s *spool) endRun() error {
	if s.begun {
		if err := s.put(); err != nil {
			return err
		}
	}
	return s.tape.endRun()
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
	if s.begun {
		if err := s.put(); err != nil {
			return err
		}
	}
	files, err := s.tape.runs()
	if err != nil {
		return err
	}
	var runs []*run
	for _, file := range files {
		r := &run{r: file}
		if err := r.advance(); err != nil {
			return err
		}
		runs = append(runs, r)
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
