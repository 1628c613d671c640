package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"varve/internal/work"
)

// A process is a server under measurement.
type process struct {
	cmd    *exec.Cmd
	output tail
	exited chan struct{}
	err    error // how it ended; to be read after exited is closed

	// under is a process that this one depends on, nil if there is none. Its costs
	// are included, and it is stopped together with this one.
	under *process
}

// account is the process itself, for the servers that embed it.
func (p *process) account() *process { return p }

// startProcess starts a command that is killed when ctx ends, and when this
// process does.
func startProcess(ctx context.Context, name string, args ...string) (*process, error) {
	return startIn(ctx, nil, name, args...)
}

// startIn is startProcess with variables added to the environment.
func startIn(ctx context.Context, environment []string, name string, args ...string) (*process, error) {
	return startWith(ctx, func(c *exec.Cmd) { c.Env = append(os.Environ(), environment...) }, name, args...)
}

// startWith is startProcess with changes to the command.
func startWith(ctx context.Context, change func(*exec.Cmd), name string, args ...string) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, name, args...), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	p.cmd.SysProcAttr = orphansEnd()
	change(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// usualPatience is how long a server may take to start.
const usualPatience = time.Minute

// answers returns a function that requests a page whose answer shows that a server is
// ready.
func answers(ctx context.Context, url string) func() error {
	return func() error {
		_, err := httpGet(ctx, url)
		return err
	}
}

// awaitReady calls ready until it succeeds, or kills the process if that takes
// too long. It is exact to 2 ms, the pause between two calls.
func (p *process) awaitReady(patience time.Duration, ready func() error) error {
	var last error
	for began := time.Now(); time.Since(began) < patience; time.Sleep(2 * time.Millisecond) {
		if last = ready(); last == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("server ended: %w\n%s", p.err, p.output.String())
		default:
		}
	}
	p.kill()
	return fmt.Errorf("server is not ready after %v: %w\n%s", patience, last, p.output.String())
}

// stop terminates the process, and kills it if it has not ended after half a
// minute.
func (p *process) stop() error {
	err := p.stopAlone()
	if p.under != nil {
		err = errors.Join(err, p.under.stop())
	}
	return err
}

// terminated is the exit status of a Java process ended by SIGTERM.
const terminated = 128 + int(syscall.SIGTERM)

func (p *process) stopAlone() error {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
		// A server may report by its exit status that a signal ended it.
		var status *exec.ExitError
		if errors.As(p.err, &status) && (status.ExitCode() < 0 || status.ExitCode() == terminated) || p.err == nil {
			return nil
		}
		return fmt.Errorf("server ended with %w:\n%s", p.err, p.output.String())
	case <-time.After(30 * time.Second):
		p.killAlone()
		return fmt.Errorf("server did not stop within 30 s:\n%s", p.output.String())
	}
}

// kill ends the process at once.
func (p *process) kill() {
	p.killAlone()
	if p.under != nil {
		p.under.kill()
	}
}

func (p *process) killAlone() {
	p.cmd.Process.Kill()
	<-p.exited
}

// A usage is what a process has used so far.
type usage struct {
	cpu  float64 // seconds, to 10 ms
	peak int64   // largest resident size, in bytes

	own *usage // without the process under it; nil if there is none
}

// usage is the usage of the process and of the process under it.
func (p *process) usage() (usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return usage{}, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return usage{}, err
	}
	cpu, _, _, err := parseStat(string(stat))
	if err != nil {
		return usage{}, err
	}
	peak, err := parsePeak(string(status))
	u := usage{cpu: cpu, peak: peak}
	if p.under == nil || err != nil {
		return u, err
	}
	under, err := p.under.usage()
	return usage{cpu + under.cpu, peak + under.peak, &u}, err
}

// familySeconds is the CPU time of the process and its children, including ended ones.
func (p *process) familySeconds() (sum float64, err error) {
	pid := strconv.Itoa(p.cmd.Process.Pid)
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	found := false
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended
		}
		own, ended, parent, err := parseStat(string(text))
		if err != nil {
			continue
		}
		itself := file == "/proc/"+pid+"/stat"
		if itself || parent == pid {
			sum += own + ended
		}
		found = found || itself
	}
	if !found {
		return 0, fmt.Errorf("process %s has ended", pid)
	}
	return sum, nil
}

// cpuNanoseconds is the CPU time of the running threads of the process and of the process under
// it, as counted by the scheduler. It is finer than usage, for short work.
func (p *process) cpuNanoseconds() (int64, error) {
	if p == nil {
		return 0, nil
	}
	under, err := p.under.cpuNanoseconds()
	if err != nil {
		return 0, err
	}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	sum := under
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			return 0, err
		}
		ns, err := parseSchedstat(string(text))
		if err != nil {
			return 0, err
		}
		sum += ns
	}
	return sum, nil
}

// clockTicks is the unit of CPU times in /proc, the same on every Linux that
// Go runs on.
const clockTicks = 100

// parseStat reads /proc/PID/stat. It returns the user and system time of a process in seconds,
// that of its ended children, and its parent.
func parseStat(text string) (own, ended float64, parent string, err error) {
	// The second field is a name in parentheses that may hold blanks and
	// parentheses.
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 15 {
		return 0, 0, "", fmt.Errorf("/proc stat %q has too few fields", text)
	}
	var ticks [4]float64
	for i, f := range fields[11:15] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, 0, "", fmt.Errorf("/proc stat: times: %w", err)
		}
		ticks[i] = float64(n)
	}
	return (ticks[0] + ticks[1]) / clockTicks, (ticks[2] + ticks[3]) / clockTicks, fields[1], nil
}

// parseSchedstat reads the time on a processor, in ns, from
// /proc/PID/task/TID/schedstat.
func parseSchedstat(text string) (int64, error) {
	first, _, ok := strings.Cut(text, " ")
	if !ok {
		return 0, fmt.Errorf("/proc schedstat %q has too few fields", text)
	}
	return strconv.ParseInt(first, 10, 64)
}

// parsePeak reads the peak resident size, in bytes, from /proc/PID/status.
func parsePeak(text string) (int64, error) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			number, ok := strings.CutSuffix(strings.TrimSpace(rest), " kB")
			if !ok {
				return 0, fmt.Errorf("/proc status: %q is not in kB", line)
			}
			kb, err := strconv.ParseInt(number, 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("/proc status has no VmHWM")
}

// diskBytes is the disk space of the files below dir.
func diskBytes(dir string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed by a merge meanwhile
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			sum += s.Blocks * 512
		}
		return nil
	})
	return sum, err
}

// awaitQuiet waits until the process has been idle, and the size of dir
// unchanged, for the given time. It gives up after patience without an error: a
// server that never becomes idle is measured as it is then.
func (p *process) awaitQuiet(ctx context.Context, dir string, quiet, patience time.Duration) error {
	const pause = 200 * time.Millisecond
	var lastCPU float64
	var lastSize int64
	since := time.Now()
	for began := since; time.Since(since) < quiet && time.Since(began) < patience; {
		if err := work.Pause(ctx, pause); err != nil {
			return err
		}
		now, err := p.usage()
		if err != nil {
			return err
		}
		size, err := diskBytes(dir)
		if err != nil {
			return err
		}
		if size != lastSize || now.cpu-lastCPU > 0.2*pause.Seconds() {
			since = time.Now()
		}
		lastCPU, lastSize = now.cpu, size
	}
	return nil
}

// millisSince is the number of milliseconds since began.
func millisSince(began time.Time) float64 { return float64(time.Since(began).Nanoseconds()) / 1e6 }

// freeAddrs returns n addresses on loopback at which nobody listens.
func freeAddrs(n int) ([]string, error) {
	var addrs []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}

// tail keeps the end of a server's output.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailBytes = 16 << 10

func (t *tail) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, text...)
	if over := len(t.text) - tailBytes; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(text), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
