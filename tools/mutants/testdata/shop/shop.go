// Package shop is mutated by the tests of mutants.
package shop

import (
	"errors"
	"log/slog"
	"time"
)

const most = 10

var errMany = errors.New("too many")

type shop struct {
	log   *slog.Logger
	sold  int
	pause time.Duration
}

func (s *shop) tell(n int) {
	if n > 3 {
		s.log.Info("sold", "n", n+1)
	}
}

func (s *shop) sell(n int) error {
	if n > most {
		return errMany
	}
	s.tell(2)
	s.sold += n
	if s.sold > 100 {
		s.log.Warn("nearly empty", "left", 200-s.sold)
	}
	return nil
}

func (s *shop) sellAll(orders []int) (int, error) {
	done := make([]int, 0, 16)
	for _, n := range orders {
		if err := s.sell(n); err != nil {
			return len(done), err
		}
		done = append(done, n)
	}
	return len(done), nil
}

func (s *shop) open(day int, holiday bool) bool {
	return day >= 1 && !holiday
}

func wait() {
	for n := 3; n > 0; {
		time.Sleep(5 * time.Millisecond)
		n--
	}
}

func closed() bool {
	return true
}
