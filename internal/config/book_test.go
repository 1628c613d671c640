package config

import (
	"log/slog"
	"strings"
	"testing"

	"varve/internal/tenant"
)

// TestBookOfPolicies: policies of a file come before the rules of carbon's, and are
// printed so that they are read back.
func TestBookOfPolicies(t *testing.T) {
	file := `
tenants: [{name: acme}]
retention:
  policies:
    - {name: web, metric: "web.*", tags: [host=web-*, dc=fra], stages: "10s:6h,60s:30d", aggregation: sum}
    - {name: acme, path: ^x, stages: forever, tenants: [acme], x_files_factor: 0}
`
	loaded, err := Load(sources(file, "", "--config v.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := loaded.WriteYAML(&b); err != nil {
		t.Fatal(err)
	}
	again, err := Load(sources(b.String(), "", "--config v.yaml"))
	if err != nil {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	book, err := again.Config.Book(slog.New(slog.DiscardHandler))
	if err != nil || len(book.Rules) != 2 {
		t.Fatalf("%+v, %v", book, err)
	}
	for tenant, want := range map[string]string{"default": "", "acme": "acme"} {
		if r := book.For(tenant).Report("x"); r.Rule != want {
			t.Errorf("%s: %+v", tenant, r)
		}
	}
	if r := book.For("default").Report("web.a;dc=fra;host=web-1"); r.Rule != "web" || r.Method != "sum" || r.Factor != 0.5 {
		t.Errorf("%+v", r)
	}
}

func TestBadPolicyInFile(t *testing.T) {
	for text, want := range map[string]string{
		"{name: a, stages: 10s}":                            `file v.yaml:1: retention.policies[0].stages: retention "10s"`,
		"{name: a, stages: forever, tenants: [acme]}":       `file v.yaml:1: retention.policies[0].tenants: there is no tenant "acme"`,
		"{name: a, stages: forever, metrics: x}":            "unknown key retention.policies[0].metrics; did you mean retention.policies[0].metric?",
		"{name: a, stages: forever}, {name: a, stages: 1s}": `retention.policies[1].name: "a" is already the name of retention.policies[0]`,
	} {
		_, err := Load(sources("retention: {policies: ["+text+"]}", "", "--config v.yaml"))
		if err == nil || strings.Count(err.Error(), want) != 1 {
			t.Errorf("%s: %v, want once %s", text, err, want)
		}
	}
}

// All rules for tenants that are not there are reported, each with its file.
func TestRulesForUnknownTenants(t *testing.T) {
	const text = "auth: {rules: [cn=a role=read tenant=acme, cn=b role=write tenant=acme+nobody, cn=c role=admin tenant=*, cn=d role=read tenant=no]}\ntenants: [{name: acme}]"
	_, err := Load(sources(text, "", "--config v.yaml"))
	const want = `file v.yaml:1: auth.rules: "cn=b role=write tenant=acme+nobody": there is no tenant "nobody"; the key tenants lists them
file v.yaml:1: auth.rules: "cn=d role=read tenant=no": there is no tenant "no"; the key tenants lists them`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestTenantOf(t *testing.T) {
	c := Config{DataDir: "data", Tenants: []tenant.Config{{Name: "acme"}}}
	for dir, want := range map[string]string{
		TenantDir("data", "acme"): "acme", "/x/tenants/acme/": "acme", "data": "default", "tenants/other": "default", "acme": "default", "": "default",
	} {
		if got := c.TenantOf(dir); got != want {
			t.Errorf("%q: %s, want %s", dir, got, want)
		}
	}
}

// TestBackupsAmongTheStoresFiles: a backup named 0000000099.blk among the block files kept the
// server from starting. In the data directory only backups/ is for backups.
func TestBackupsAmongTheStoresFiles(t *testing.T) {
	for dir, good := range map[string]bool{
		"": true, "/data/backups": true, "data/backups": true, "data/backups/daily": true, "elsewhere": true, "data-backups": true, "..backups": true, ".": true,
		"data": false, "./data/": false, "data/blocks": false, "data/log/x": false, "data/tenants": false, "data/backups/../timelines": false, "data/..backups": false,
	} {
		c := Default()
		c.DataDir, c.Embedded.BackupDir = "data", dir
		err := c.Validate()
		if (err == nil) != good || err != nil && !strings.Contains(err.Error(), "embedded.backup_dir: "+dir+" is inside the data directory, where only ") {
			t.Errorf("%q: %v", dir, err)
		}
		if c.Store = Cassandra; c.Validate() != nil {
			t.Errorf("%q over Cassandra, which has no backups: %v", dir, c.Validate())
		}
	}
}
