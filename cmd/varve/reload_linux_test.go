package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A reload does not wait for the writer of a pipe, which a shell's <(command) leaves behind.
func TestReloadDoesNotWaitForAPipe(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	// Opened for both, so that a read that waits ends with the test.
	end, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	file := filepath.Join(dir, "varve.yaml")
	if err := os.WriteFile(file, []byte("graphite:\n  storage_schemas: "+pipe+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func() error{
		"--config":        func() error { _, err := loadAgain(terminal{}, []string{"--config", pipe}); return err },
		"--kairosdb-conf": func() error { _, err := loadAgain(terminal{}, []string{"--kairosdb-conf", pipe}); return err },
		"--carbon-conf":   func() error { _, err := loadAgain(terminal{}, []string{"--carbon-conf", pipe}); return err },
		"a file that is named": func() error {
			loaded, err := loadAgain(terminal{}, []string{"--config", file})
			if err == nil {
				_, err = loaded.Config.Graphite.Book(slog.New(slog.DiscardHandler))
			}
			return err
		},
	} {
		done := make(chan error, 1)
		go func() { done <- read() }()
		select {
		case err := <-done:
			if err == nil || !strings.Contains(err.Error(), "is not a regular file") {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(30 * time.Second):
			t.Errorf("%s: still reading a pipe after 30 s", name)
		}
	}
}
