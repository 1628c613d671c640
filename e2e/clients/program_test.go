package clients

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"varve/e2e/process"
)

// programRuns is how long a client may run.
const programRuns = time.Minute

// run runs a client until it ends, which must be with status 0.
func run(t *testing.T, prepare func(*exec.Cmd), name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), programRuns)
	defer cancel()
	c := process.Command(ctx, name, args...)
	if prepare != nil {
		prepare(c)
	}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// javaArgs are the arguments of java that run the driver.
func javaArgs(t *testing.T, settings ...string) []string {
	t.Helper()
	path := process.Provide(t, "Java clients", root, "javaclients.sh")
	// The telnet client writes in the JVM's charset, which follows the locale up to JDK 17.
	return append(settings, "-Dfile.encoding=UTF-8", "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		// The Java client writes down time zones by reflection.
		"--add-opens=java.base/sun.util.calendar=ALL-UNNAMED", "--add-opens=java.base/java.util=ALL-UNNAMED",
		"-cp", path, "varve.clients.Driver")
}

// A shell is a running KairosDB Java client that takes commands: one client,
// with its pool of two connections.
type shell struct {
	t       *testing.T
	in      io.WriteCloser
	answers chan []byte // closed when it has ended
	stderr  bytes.Buffer
}

// An answer is the result of a call of the client.
type answer struct {
	OK      json.RawMessage
	Error   []string // classes of the exception and its causes
	Status  int      // that the exception tells, or 0
	Message string
}

func startShell(t *testing.T, url string) *shell {
	t.Helper()
	args := append(javaArgs(t), "kairosdb", url)
	ctx, cancel := context.WithCancel(context.Background())
	c := process.Command(ctx, "java", args...)
	s := &shell{t: t, answers: make(chan []byte)}
	c.Stderr = &s.stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	s.in = in
	go func() {
		defer close(s.answers)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			s.answers <- bytes.Clone(lines.Bytes())
		}
	}()
	t.Cleanup(func() {
		in.Close()
		end := time.AfterFunc(5*time.Second, cancel)
		for range s.answers {
		}
		c.Wait()
		end.Stop()
		cancel()
	})
	return s
}

// callWithin is how long a call may take, on a busy machine, where the first one
// waits for Java to start. The client has no timeout of its own: when its pool is
// used up it waits for ever.
const callWithin = time.Minute

// try calls the client.
func (s *shell) try(command, argument string) answer {
	s.t.Helper()
	if _, err := fmt.Fprintf(s.in, "%s %s\n", command, strings.ReplaceAll(argument, "\n", " ")); err != nil {
		s.t.Fatalf("%s: %v\n%s", command, err, s.stderr.String())
	}
	select {
	case line, ok := <-s.answers:
		var a answer
		if !ok {
			s.t.Fatalf("%s: the client has ended\n%s", command, s.stderr.String())
		}
		if err := json.Unmarshal(line, &a); err != nil {
			s.t.Fatalf("%s: %v in %s", command, err, line)
		}
		return a
	case <-time.After(callWithin):
		s.t.Fatalf("%s %s: the client does not return: an answer before has used up its connections", command, argument)
	}
	return answer{}
}

// call calls the client, and fails the test on an exception. It returns the
// client's reading of the answer, as JSON.
func (s *shell) call(command, argument string) string {
	s.t.Helper()
	a := s.try(command, argument)
	if a.Error != nil {
		s.t.Fatalf("%s %s: %s: %s", command, argument, a.Error, a.Message)
	}
	return string(a.OK)
}

// failed reports whether the call ended in an exception of a class.
func (a answer) failed(class string) bool { return slices.Contains(a.Error, class) }

// sameJSON reports whether two texts mean the same.
func sameJSON(t *testing.T, got, want string) bool {
	t.Helper()
	return compact(t, got) == compact(t, want)
}

// compact returns JSON with sorted keys and without blanks.
func compact(t *testing.T, text string) string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
