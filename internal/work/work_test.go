package work

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestAPanicIsAnErrorCountedAndLogged(t *testing.T) {
	var text bytes.Buffer
	registry := prometheus.NewRegistry()
	Register(registry, slog.New(slog.NewTextHandler(&text, nil)))
	defer logger.Store(nil)
	before := panics.Load()

	var g Group
	var none []int
	g.Go("count sheep", func() error { none[1]++; return nil })
	err := g.Wait()
	var fault *PanicError
	if !errors.As(err, &fault) || !strings.Contains(err.Error(), "count sheep") || !strings.Contains(err.Error(), "index out of range") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(string(fault.Stack), "work_test.go") || !strings.Contains(text.String(), "work_test.go") {
		t.Errorf("no stack in the error or the log: %s", text.String())
	}
	if again := Do("pass it on", func() error { panic(fault) }); again != error(fault) {
		t.Errorf("a panic that is passed on became %v", again)
	}
	if n := panics.Load() - before; n != 1 {
		t.Errorf("%d panics were counted, not 1", n)
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "varve_worker_panics_total" {
		t.Errorf("metrics %v, %v", families, err)
	}
}

func TestGroupReturnsTheFirstError(t *testing.T) {
	var g Group
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	oops := errors.New("oops")
	g.Go("fail", func() error { return oops })
	g.Go("end well", func() error { return nil })
	if err := g.Wait(); err != oops {
		t.Errorf("got %v", err)
	}
}
