package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPoliciesCommand: it tells which rule a path has and why, of a tenant too, without a
// server.
func TestPoliciesCommand(t *testing.T) {
	dir := t.TempDir()
	schemas, config := filepath.Join(dir, "schemas"), filepath.Join(dir, "varve.yaml")
	for file, text := range map[string]string{
		schemas: "[disk]\npattern = ^disk\nretentions = 60s:1d\n",
		config: "tenants: [{name: acme}]\nretention:\n  policies:\n" +
			"    - {name: web, metric: web.*, tags: [host=web-*], stages: \"10s:6h,60s:30d\", aggregation: sum}\n" +
			"    - {name: own, tenants: [acme], stages: forever}\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for args, want := range map[string]string{
		"web.a;host=web-1":     "rule [web] of retention.policies: the metric is web.*, the tag host is web-*\n  samples, one for each 10s    for 6h\n",
		"disk.a":               "rule [disk] of storage-schemas.conf: the path has ^disk\n",
		"else":                 "no rule matches",
		"disk.a --tenant=acme": "rule [own] of retention.policies: every series\n  every sample                 for ever\n",
		"":                     "2 rules with stages; the first one that matches a series applies:\n",
		"a --tenant nobody":    `flag --tenant: there is no tenant "nobody"`,
	} {
		var out strings.Builder
		code := run(terminal{stdout: &out, stderr: &out}, append([]string{"policies", "--config", config, "--storage-schemas", schemas}, strings.Fields(args)...))
		if !strings.Contains(out.String(), want) || (code == exitOK) == strings.HasPrefix(want, "flag") {
			t.Errorf("%s: %d\n%s, want %s", args, code, out.String(), want)
		}
	}
	var out strings.Builder
	if code := run(terminal{stdout: &out, stderr: &out}, []string{"policies"}); code != exitOK || !strings.Contains(out.String(), "There are no rules. ") {
		t.Errorf("without rules: %d\n%s", code, out.String())
	}
}
