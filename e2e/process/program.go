package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Command prepares a program that is killed, with what it started, when ctx
// ends or the test binary does.
func Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	EndWithTest(c)
	killGroup(c)
	c.WaitDelay = time.Second
	return c
}

// installWithin is how long a script may take to fetch something.
const installWithin = 5 * time.Minute

// provided are the results of scripts that have run in this test binary.
var provided struct {
	sync.Mutex
	runs map[string]func() (string, error)
}

// Provide runs a script of scripts/ that makes clients available, once, and
// returns what it prints. Where it fails the test is skipped, loudly: what says
// which clients are missing, and the script why. root is the directory that
// scripts/ is in.
func Provide(t *testing.T, what, root, script string) string {
	t.Helper()
	provided.Lock()
	if provided.runs == nil {
		provided.runs = make(map[string]func() (string, error))
	}
	if provided.runs[script] == nil {
		provided.runs[script] = sync.OnceValues(func() (string, error) { return provide(filepath.Join(root, "scripts", script)) })
	}
	run := provided.runs[script]
	provided.Unlock()
	out, err := run()
	if err != nil {
		t.Skipf("*** NO REAL %s IN THIS RUN ***\n%v", strings.ToUpper(what), err)
	}
	return out
}

func provide(script string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), installWithin)
	defer cancel()
	c := Command(ctx, script)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = ctx.Err()
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", script, err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}
