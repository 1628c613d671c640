package storetest

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
)

// A recorder is a testing.TB whose failures are kept instead of failing the
// test around it, so that a failing run can be repeated and made smaller.
type recorder struct {
	testing.TB // for TempDir, Context and the like

	mu       sync.Mutex
	failed   bool
	skipped  bool
	messages []string
	cleanups []func()
}

// record runs f with a recorder in a goroutine of its own, then its clean-ups,
// and returns the messages of its failures, "" if there were none.
func record(tb testing.TB, f func(tb testing.TB)) (failure string, skipped bool) {
	r := &recorder{TB: tb}
	r.inGoroutine(func() { f(r) })
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.inGoroutine(r.cleanups[i])
	}
	if !r.failed {
		return "", r.skipped
	}
	return strings.Join(append(r.messages, ""), "\n"), false
}

// inGoroutine runs f where FailNow may end the goroutine; a panic is a failure.
func (r *recorder) inGoroutine(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		f()
	}()
	<-done
}

func (r *recorder) note(failed bool, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || failed
	if text != "" {
		r.messages = append(r.messages, strings.TrimSuffix(text, "\n"))
	}
}

func (r *recorder) Helper()                      {}
func (r *recorder) Log(args ...any)              { r.note(false, fmt.Sprintln(args...)) }
func (r *recorder) Logf(f string, args ...any)   { r.note(false, fmt.Sprintf(f, args...)) }
func (r *recorder) Fail()                        { r.note(true, "") }
func (r *recorder) Error(args ...any)            { r.note(true, fmt.Sprintln(args...)) }
func (r *recorder) Errorf(f string, args ...any) { r.note(true, fmt.Sprintf(f, args...)) }
func (r *recorder) FailNow()                     { r.Fail(); runtime.Goexit() }
func (r *recorder) Fatal(args ...any)            { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(f string, args ...any) { r.Errorf(f, args...); runtime.Goexit() }
func (r *recorder) Skip(args ...any)             { r.SkipNow() }
func (r *recorder) Skipf(f string, args ...any)  { r.SkipNow() }
func (r *recorder) SkipNow()                     { r.note(false, ""); r.setSkipped(); runtime.Goexit() }
func (r *recorder) Failed() bool                 { r.mu.Lock(); defer r.mu.Unlock(); return r.failed }
func (r *recorder) Skipped() bool                { r.mu.Lock(); defer r.mu.Unlock(); return r.skipped }
func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) setSkipped() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skipped = true
}
