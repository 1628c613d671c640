// Package work runs the goroutines that serve a request. None of them can end
// the process: a panic becomes the error of its request, is counted, and is
// logged with its stack.
//
// Package server handles panics in the goroutine of an HTTP handler itself: it
// answers with 500.
package work

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// A PanicError is a bug in Varve that ended a request.
type PanicError struct {
	Doing string // what the goroutine was doing, for example "read series"
	Value any    // of the panic
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("%s: a bug in Varve: %v; the log has the stack, please report it", e.Doing, e.Value)
}

// Panics are counted and logged for the whole process.
var (
	panics atomic.Uint64
	logger atomic.Pointer[slog.Logger] // nil: nothing is logged
)

// Register shows the number of panics on r and logs each to log.
func Register(r prometheus.Registerer, log *slog.Logger) {
	logger.Store(log)
	r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "varve_worker_panics_total",
		Help: "Panics in goroutines of requests. Each became the error of its request.",
	}, func() float64 { return float64(panics.Load()) }))
}

// Do calls f. A panic of f becomes a *PanicError.
func Do(doing string, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = caught(doing, v)
		}
	}()
	return f()
}

func caught(doing string, v any) error {
	if e, ok := v.(*PanicError); ok {
		return e // counted already
	}
	e := &PanicError{doing, v, debug.Stack()}
	panics.Add(1)
	if log := logger.Load(); log != nil {
		log.Error("a goroutine of a request panicked, and the request fails; this is a bug in Varve, please report it",
			"doing", doing, "panic", fmt.Sprint(v), "stack", string(e.Stack))
	}
	return e
}

// A Group runs goroutines of one request, which waits for them. The zero value is
// ready for use.
type Group struct {
	wait  sync.WaitGroup
	once  sync.Once
	first error
}

// Go calls f in a new goroutine.
func (g *Group) Go(doing string, f func() error) {
	g.wait.Go(func() {
		if err := Do(doing, f); err != nil {
			g.once.Do(func() { g.first = err })
		}
	})
}

// Wait waits until all goroutines have ended, and returns the first error.
func (g *Group) Wait() error {
	g.wait.Wait()
	return g.first
}
