// Package work runs the goroutines that serve a request. None of them can end
// the process: a panic becomes the error of its request, is counted, and is
// logged with its stack.
//
// A panic in the goroutine of an HTTP handler is the business of package server,
// which answers it with 500.
package work

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// A PanicError is a fault of Varve that ended a request.
type PanicError struct {
	Doing string // what the goroutine was doing, for example "read series"
	Value any    // of the panic
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("%s: a fault in Varve: %v; the log has the stack, please report it", e.Doing, e.Value)
}

// The process has one count of panics, as it has one of goroutines, and one
// place to tell of them.
var (
	panics atomic.Uint64
	tell   atomic.Pointer[slog.Logger] // nil: nobody is told
)

// Register shows the number of panics on r and logs each to log.
func Register(r prometheus.Registerer, log *slog.Logger) {
	tell.Store(log)
	r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "varve_worker_panics_total",
		Help: "Panics in goroutines that served a request, each of which became the error of its request.",
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
	if log := tell.Load(); log != nil {
		log.Error("a goroutine panicked; this is a fault of Varve, please report it; its request fails",
			"doing", doing, "panic", fmt.Sprint(v), "stack", string(e.Stack))
	}
	return e
}

// A Group is goroutines of one request, which ends after they have. The zero
// value is ready for use.
type Group struct {
	wait  sync.WaitGroup
	once  sync.Once
	first error
}

// Go calls f in a goroutine of its own.
func (g *Group) Go(doing string, f func() error) {
	g.wait.Go(func() {
		if err := Do(doing, f); err != nil {
			g.once.Do(func() { g.first = err })
		}
	})
}

// Wait returns the first error, after all goroutines have ended.
func (g *Group) Wait() error {
	g.wait.Wait()
	return g.first
}
