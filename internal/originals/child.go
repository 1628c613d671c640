package originals

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// stopLimit is the time after SIGTERM at which a process is killed.
const stopLimit = 30 * time.Second

// logTail is the number of bytes of a log that a failed test logs.
const logTail = 8 << 10

// A child is one process that ends no later than the test that started it.
type child struct {
	t       testing.TB
	what    string   // for messages, for example "KairosDB" or "Cassandra node 2"
	command []string // program and arguments
	logPath string

	mu    sync.Mutex
	run   *exec.Cmd
	ended chan struct{} // closed when run has ended
}

// newChild prepares a process, and registers its end with the test, but does not start it.
func newChild(t testing.TB, what, logPath string, command ...string) *child {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(logPath), 0o755); err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, what: what, command: command, logPath: logPath}
	t.Cleanup(func() {
		c.kill()
		if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", what, c.tail())
		}
	})
	return c
}

// start runs the command and waits until ready returns nil. If the process ends before,
// the error wraps errEnded. If the limit passes, start kills the process and returns the
// last error of ready. Output is appended to the log.
func (c *child) start(limit time.Duration, ready func() error) error {
	log, err := os.OpenFile(c.logPath, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	run := exec.Command(c.command[0], c.command[1:]...)
	run.Stdout, run.Stderr = log, log
	endWithTest(run)
	if err := run.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = run.Wait() // the log has the reason
		close(ended)
	}()
	c.mu.Lock()
	c.run, c.ended = run, ended
	c.mu.Unlock()
	return c.await(limit, ready)
}

func (c *child) await(limit time.Duration, ready func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-c.ended:
			return fmt.Errorf("start %s: %w; its log ends:\n%s", c.what, errEnded, c.tail())
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			c.kill()
			return fmt.Errorf("start %s: not ready after %v: %w; its log ends:\n%s", c.what, limit, err, c.tail())
		}
	}
}

// signal sends a signal to the process, if it runs.
func (c *child) signal(s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run != nil {
		_ = c.run.Process.Signal(s) // an error means that the process has ended
	}
}

// kill ends the process at once and waits until it has.
func (c *child) kill() {
	c.signal(syscall.SIGKILL)
	if c.ended != nil {
		<-c.ended
	}
}

// stop asks the process to end and waits until it has.
func (c *child) stop() {
	c.t.Helper()
	if c.ended == nil {
		return
	}
	c.resume()
	c.signal(syscall.SIGTERM)
	select {
	case <-c.ended:
	case <-time.After(stopLimit):
		c.t.Logf("%s did not end within %v of SIGTERM and is killed", c.what, stopLimit)
		c.kill()
	}
}

// tail returns the end of the log.
func (c *child) tail() string {
	text, err := os.ReadFile(c.logPath)
	if err != nil {
		return err.Error()
	}
	if len(text) > logTail {
		text = text[len(text)-logTail:]
		if _, rest, cut := bytes.Cut(text, []byte("\n")); cut {
			text = rest
		}
	}
	return strings.ToValidUTF8(string(text), "?")
}
