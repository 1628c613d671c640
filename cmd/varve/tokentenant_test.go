package main

import (
	"bytes"
	"io"
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
