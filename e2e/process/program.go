package process

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
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

// Provide runs a script of scripts/ that makes clients available, and returns
// what it prints. Where it fails the test is skipped, loudly: what is the
// client's name in the message, and the script says what is missing.
func Provide(t *testing.T, what, root, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), installWithin)
	defer cancel()
	c := Command(ctx, filepath.Join(root, "scripts", script))
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Skipf("*** NO REAL %s IN THIS RUN: scripts/%s ended with %v ***\n%s", strings.ToUpper(what), script, err, stderr.String())
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
