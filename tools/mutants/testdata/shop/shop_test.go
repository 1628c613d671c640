package shop

import (
	"log/slog"
	"testing"
)

func TestSell(t *testing.T) {
	s := shop{log: slog.Default()}
	if err := s.sell(10); err != nil || s.sold != 10 {
		t.Errorf("sold %d, %v", s.sold, err)
	}
	if s.sell(11) == nil {
		t.Error("sold 11")
	}
	if n, err := s.sellAll([]int{1, 11}); n != 1 || err == nil {
		t.Errorf("sold %d, %v", n, err)
	}
}

func TestWait(t *testing.T) { wait() }
