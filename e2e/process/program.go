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

// Command prepares a program. It is killed, with the processes that it has
// started, when ctx or the test binary ends.
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

// Provide runs a script of scripts/ that installs clients, once, and returns
// its output. If the script fails, the test is skipped with a message: what
// names the missing clients, and the script gives the reason. root is the
// parent directory of scripts/.
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
