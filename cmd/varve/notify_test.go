//go:build unix

package main

import (
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A service manager is told when the server is ready, reloads and stops.
func TestServiceManagerIsTold(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	manager.SetReadDeadline(time.Now().Add(time.Minute))
	hears := func(want string) {
		t.Helper()
		b := make([]byte, 200)
		if n, err := manager.Read(b); err != nil || string(b[:n]) != want {
			t.Fatalf("the manager hears %q, %v; want %q", b[:n], err, want)
		}
	}
	p := startIn(t, []string{"NOTIFY_SOCKET=" + socket}, t.TempDir())
	hears(managerReady)
	if err := p.command.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	hears(managerReloading)
	hears(managerReady)
	p.stop(syscall.SIGTERM)
	hears(managerStopping)
}
