package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A token for a tenant that is not configured is made, since tenants may come later, and the
// command says what it is worth until then.
func TestTokenForUnknownTenant(t *testing.T) {
	for tenant, warned := range map[string]bool{"acme": true, "*": false, "default": false} {
		var told bytes.Buffer
		if err := createToken(terminal{stdout: io.Discard, stderr: &told}, []string{"me", "--role", "admin", "--tenant", tenant, "--data-dir", t.TempDir()}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(told.String(), `Tenant "acme" is not in this configuration`); got != warned {
			t.Errorf("%s: %s", tenant, &told)
		}
	}
}

// The audit log has the tenants that a token is for, also if none were named.
func TestAuditedTenants(t *testing.T) {
	for role, want := range map[string]string{"metrics": "role metrics, tenants *, ", "read,write": "role read,write, tenants default, "} {
		dir := t.TempDir()
		if err := createToken(terminal{stdout: io.Discard, stderr: io.Discard}, []string{"me", "--role", role, "--data-dir", dir}); err != nil {
			t.Fatal(err)
		}
		log, err := os.ReadFile(filepath.Join(dir, "audit.log"))
		if err != nil || !strings.Contains(string(log), want) {
			t.Errorf("%v, %s, want %s", err, log, want)
		}
	}
}
