package wsp

import "cmp"

// A spool is a tape with the samples of one series: in each run, the last sample of
// each step.
type spool struct {
	tape
	last  sample // the last sample of the current step, not yet written
	begun bool   // last is set
	bytes [sampleBytes]byte
}

func newSpool(dir string) (*spool, error) {
	t, err := newTape(dir)
	return &spool{tape: t}, err
}

// reset empties the spool for the next series.
func (s *spool) reset() error {
	s.begun = false
	return s.tape.reset()
}

// add adds the next sample of the current run.
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

// endRun ends the current run.
func (s *spool) endRun() error {
	if s.begun {
		if err := s.put(); err != nil {
			return err
		}
	}
	return s.tape.endRun()
}

// merge merges the runs. It calls yield for the last sample of each step, in ascending time.
func (s *spool) merge(stepMS int64, yield func(sample) error) error {
	if s.begun {
		if err := s.put(); err != nil {
			return err
		}
	}
	runs, err := openRuns(&s.tape, sampleBytes, parseSample)
	if err != nil {
		return err
	}
	last, begun := sample{}, false
	for {
		r := earliest(runs, func(a, b sample) int { return cmp.Compare(a.ms, b.ms) })
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
