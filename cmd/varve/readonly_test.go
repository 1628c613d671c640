package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestReadingForSomebodyElse: commands that only read serve a user who may not write
// to the data directory, such as that of a snapshot, and leave nothing in it.
func TestReadingForSomebodyElse(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: only root can run a command as another user")
	}
	dir := t.TempDir()
	p := filled(t, filepath.Join(dir, "data"))
	p.settle()
	p.kill() // "in.log" is in the log only
	snapshot := filepath.Join(dir, "snapshot")
	if err := os.CopyFS(snapshot, os.DirFS(filepath.Join(dir, "data"))); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{filepath.Dir(binary), dir, filepath.Dir(dir)} { // the way there
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(snapshot, func(path string, d fs.DirEntry, err error) error {
		mode := os.FileMode(0o444)
		if d.IsDir() {
			mode = 0o555
		}
		return os.Chmod(path, mode)
	})
	if err != nil {
		t.Fatal(err)
	}
	before := listing(t, snapshot)
	for want, args := range map[string]string{
		"no damage found": "check",
		"in.files":        "stats",
		"BYTES/SAMPLE":    "inspect",
		"SEGMENT":         "inspect log",
		"next series":     "inspect catalogue",
		`"name":"in.log"`: "export",
	} {
		command, rest, _ := strings.Cut(args, " ")
		asked := append([]string{command, "--data-dir=" + snapshot}, strings.Fields(rest)...)
		if status, out := asNobody(t, asked...); status != 0 || !strings.Contains(out, want) {
			t.Errorf("varve %s: status %d, want 0 and %q\n%s", args, status, want, out)
		}
	}
	if status, out := asNobody(t, "repair", "--data-dir="+snapshot); status == 0 || !strings.Contains(out, "permission denied") {
		t.Errorf("varve repair: status %d, want that it may not\n%s", status, out)
	}
	if after := listing(t, snapshot); after != before {
		t.Errorf("the snapshot was\n%sand is\n%s", before, after)
	}
}

func asNobody(t *testing.T, args ...string) (status int, out string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, binary, args...)
	c.Dir, c.Env = "/", []string{}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	var both bytes.Buffer
	c.Stdout, c.Stderr = &both, &both
	if err := c.Run(); err != nil && c.ProcessState == nil {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), both.String()
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			fmt.Fprintln(&b, path, info.Size(), info.Mode(), info.ModTime())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
