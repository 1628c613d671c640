package main

import (
	"bytes"
	"context"
	"errors"
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

// Root has run an import in the directory of another user, whose server may then not open a file.
func TestFilesOfRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: only root can run a command as another user")
	}
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	p := filled(t, data)
	p.kill()
	for _, d := range []string{filepath.Dir(binary), dir, filepath.Dir(dir)} { // the way there
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".wal" {
			return os.Chmod(path, 0o600)
		}
		return os.Chown(path, 65534, 65534)
	})
	if err != nil {
		t.Fatal(err)
	}
	const wayOut = "must belong to the user of the server: run each command as this user; chown -R"
	for _, args := range [][]string{
		{"serve", "--http-addr=127.0.0.1:0", "--telnet-addr=", "--carbon-addr=", "--pickle-addr="},
		{"import", "-f", binary},
		{"export", "-f", os.DevNull},
		{"repair"},
	} {
		if status, out := asNobody(t, append(args, "--data-dir="+data)...); status != 1 || !strings.Contains(out, wayOut) {
			t.Errorf("varve %s: status %d, want 1 and %q\n%s", args, status, wayOut, out)
		}
	}
	ownLog(t, data)
	err = errors.Join(os.Mkdir(filepath.Join(data, "lost+found"), 0o700), os.WriteFile(filepath.Join(data, ".profile"), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if _, out := asNobody(t, "doctor", "--data-dir="+data); strings.Contains(out, wayOut) {
		t.Errorf("varve doctor, where root owns what is not the server's:\n%s", out)
	}
	wantNotDamaged(t, data, wayOut)
	if err := os.Mkdir(filepath.Join(data, "spool"), 0o755); err != nil {
		t.Fatal(err)
	}
	if status, out := asNobody(t, "serve", "--http-addr=127.0.0.1:0", "--telnet-addr=", "--carbon-addr=", "--pickle-addr=",
		"--data-dir="+data); status != 1 || !strings.Contains(out, wayOut) {
		t.Errorf("a spool of root: status %d, want 1 and %q\n%s", status, wayOut, out)
	}
	if err := os.Chown(data, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(data, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"export", "-f", os.DevNull}, {"check"}, {"stats"}, {"inspect"}, {"repair"}} {
		if status, out := asNobody(t, append(args, "--data-dir="+data)...); status != 1 || strings.Count(out, wayOut) != 1 {
			t.Errorf("varve %s, a closed directory: status %d, want 1 and %q once\n%s", args, status, wayOut, out)
		}
	}
}

// TestReadOnlyFileSystem: a start on a file system that is read-only says so, and what to do.
func TestReadOnlyFileSystem(t *testing.T) {
	err := notPermitted(&fs.PathError{Op: "open", Path: "data/LOCK", Err: syscall.EROFS}, "data")
	if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), "\nmount the file system of data for writing") {
		t.Errorf("%v", err)
	}
}

// ownLog gives the log to the user of the server, who would see nothing else before.
func ownLog(t *testing.T, data string) {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(data, "log", "*.wal"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("%v %v", segments, err)
	}
	for _, path := range segments {
		if err := os.Chown(path, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
}

// wantNotDamaged makes files of Pebble in a data directory unreadable, one after the other. No command
// takes that for damage, whose remedy is a backup or to do without the events, and the doctor sees it.
func wantNotDamaged(t *testing.T, data, wayOut string) {
	t.Helper()
	for _, pattern := range []string{"catalogue/*.log", "catalogue/OPTIONS-*", "timelines/*.log", "timelines/OPTIONS-*"} {
		paths, err := filepath.Glob(filepath.Join(data, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v, %v", pattern, paths, err)
		}
		own := func(user int) {
			for _, path := range paths {
				if err := errors.Join(os.Chown(path, user, user), os.Chmod(path, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
		}
		own(0)
		for _, args := range [][]string{
			{"check"}, {"repair"}, {"doctor"},
			{"serve", "--http-addr=127.0.0.1:0", "--telnet-addr=", "--carbon-addr=", "--pickle-addr="},
		} {
			status, out := asNobody(t, append(args, "--data-dir="+data)...)
			if status != 1 || !strings.Contains(out, wayOut) || strings.Contains(out, "restore") {
				t.Errorf("varve %s, %s of root: status %d, want 1, %q and no advice to restore a backup\n%s", args, pattern, status, wayOut, out)
			}
		}
		own(65534)
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
