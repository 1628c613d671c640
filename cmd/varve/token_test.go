//go:build unix

package main

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestTokenAsRoot: what varve token writes as root belongs to the server's user, who owns the
// directory: tokens, their lock and the audit log. A file that is there keeps owner and mode.
func TestTokenAsRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT RUN: giving files to other users takes root; run this test as root")
	}
	const server = 4711 // need not exist
	dir := t.TempDir()
	if err := os.Chown(dir, server, server); err != nil {
		t.Fatal(err)
	}
	token := func(args ...string) {
		t.Helper()
		run := createToken
		if args[0] == "revoke" {
			run = revokeToken
		}
		if err := run(terminal{stdout: io.Discard, stderr: io.Discard}, append(args[1:], "--data-dir", dir)); err != nil {
			t.Fatal(err)
		}
	}
	belongs := func(name string, owner uint32, mode os.FileMode) {
		t.Helper()
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if s := info.Sys().(*syscall.Stat_t); s.Uid != owner || s.Gid != owner || info.Mode().Perm() != mode {
			t.Errorf("%s belongs to %d:%d with mode %o, want %d and %o", name, s.Uid, s.Gid, info.Mode().Perm(), owner, mode)
		}
	}
	token("create", "me", "--role", "read")
	for _, name := range []string{"tokens.json", "tokens.json.lock", "audit.log"} {
		belongs(name, server, 0o600)
	}
	tokens := filepath.Join(dir, "tokens.json")
	if err := os.Chown(tokens, server+1, server+1); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(tokens, 0o640); err != nil {
		t.Fatal(err)
	}
	token("create", "you", "--role", "read")
	belongs("tokens.json", server+1, 0o640)
	token("revoke", "you")
	belongs("tokens.json", server+1, 0o640)
}
