package cql

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"varve/internal/model"
)

func TestTagMapBytes(t *testing.T) {
	tags := model.MustTags("host", "server1", "dc", "lga")
	const want = "00000002" + "00000002" + "6463" + "00000003" + "6c6761" + "00000004" + "686f7374" + "00000007" + "73657276657231"
	if got := hex.EncodeToString(TagMap{Tags: tags}.Append(nil)); got != want {
		t.Errorf("bytes are %s, want %s", got, want)
	}
	if n := (TagMap{Tags: tags}).Size(); n != len(want)/2 {
		t.Errorf("size is %d, want %d", n, len(want)/2)
	}
	// UTF-16 order: the supplementary character comes first.
	two := TagMap{Tags: model.MustTags("\uFFFD", "bmp", "\U0001F600", "emoji")}.Append(nil)
	if i, j := bytes.Index(two, []byte("\U0001F600")), bytes.Index(two, []byte("\uFFFD")); i > j {
		t.Error("tags are bound in the order of UTF-8")
	}
}

// A lookup may read a million row keys: the tags of each need no memory but their own.
func TestTagMapMemory(t *testing.T) {
	var texts []string
	for i := range 20 {
		raw := TagMap{Tags: model.MustTags(texts...)}.Append(nil)
		if n := testing.AllocsPerRun(10, func() { _, _ = ParseTagMap(raw) }); n > 1 {
			t.Errorf("%d tags: %g allocations", i, n)
		}
		texts = append(texts, fmt.Sprintf("tag%02d", i), "a value")
	}
}

// FuzzTagMap: the short way of reading sorted tags gives the texts in the bytes.
func FuzzTagMap(f *testing.F) {
	f.Add([]byte(nil))
	for _, tags := range []model.Tags{{}, model.MustTags("a", "1", "b", ""), model.MustTags("a", "1", "b", "2", "\U0001f600", "x", "\uffee", "y")} {
		f.Add(TagMap{Tags: tags}.Append(nil))
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 1, 0, 0, 0, 1, 'a', 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 2, 0, 0, 0, 1, 'b', 0, 0, 0, 1, 'x', 0, 0, 0, 1, 'a', 0, 0, 0, 1, 'x'})
	f.Fuzz(func(t *testing.T, data []byte) {
		tags, err := ParseTagMap(data)
		if err != nil {
			return
		}
		text := func(at int) (string, int) {
			end := at + 4 + int(binary.BigEndian.Uint32(data[at:]))
			return string(data[at+4 : end]), end
		}
		pairs := map[string]string{}
		for at := 4; at < len(data); {
			var name string
			name, at = text(at)
			pairs[name], at = text(at)
		}
		if got := maps.Collect(tags.All()); !maps.Equal(got, pairs) {
			t.Errorf("%x is read as %v, want %v", data, got, pairs)
		}
		again, err := ParseTagMap(TagMap{Tags: tags}.Append(nil))
		if err != nil || again != tags {
			t.Errorf("%v is read back as %v, %v", tags, again, err)
		}
	})
}

func TestSecrets(t *testing.T) {
	c := DefaultConfig()
	c.Username, c.Password = "varve", "geheim"
	text, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{string(text), fmt.Sprint(c), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", c)} {
		if strings.Contains(shown, "geheim") {
			t.Errorf("the password is shown: %s", shown)
		}
	}
}

func TestConfigValidate(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Config){
		"hosts: empty":      func(c *Config) { c.Hosts = nil },
		"hosts: \"a:0\"":    func(c *Config) { c.Hosts = []string{"a:0"} },
		"keyspace":          func(c *Config) { c.Keyspace = "a b" },
		"read_consistency":  func(c *Config) { c.ReadConsistency = "SOME" },
		"write_consistency": func(c *Config) { c.WriteConsistency = "SERIAL" },
		"ANY is for writes": func(c *Config) { c.ReadConsistency = "ANY" },
		"password_file":     func(c *Config) { c.Username, c.Password, c.PasswordFile = "u", "p", "f" },
		"username":          func(c *Config) { c.Password = "p" },
		"give both or none": func(c *Config) { c.TLS.Enabled, c.TLS.CertFile = true, file },
		"tls.ca_file":       func(c *Config) { c.TLS.Enabled, c.TLS.CAFile = true, file+"x" },
		"connections":       func(c *Config) { c.Connections = 0 },
		"reads_in_flight":   func(c *Config) { c.ReadsInFlight = 0 },
		"writes_in_flight":  func(c *Config) { c.WritesInFlight = 1 << 20 },
		"bytes_in_flight":   func(c *Config) { c.BytesInFlight = 1 },
		"attempts":          func(c *Config) { c.Attempts = 0 },
		"stall_after":       func(c *Config) { c.StallAfter = time.Hour },
		"retry_pause: want": func(c *Config) { c.RetryPause = 0 },
	} {
		c := DefaultConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q: %v", want, err)
		}
	}
}

func TestSplitHost(t *testing.T) {
	for text, want := range map[string]string{
		"a": "a 9042", "10.0.0.1": "10.0.0.1 9042", "a:19042": "a 19042", "::1": "::1 9042", "[::1]": "::1 9042", "[::1]:7": "::1 7",
		"a:b": "", "a:70000": "", ":9042": "", "": "",
	} {
		host, port, err := splitHost(text)
		if got := fmt.Sprintf("%s %d", host, port); err == nil && got != want || err != nil && want != "" {
			t.Errorf("%q is %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestQualified(t *testing.T) {
	for text, want := range map[string]string{
		"INSERT INTO row_keys (metric) VALUES (?)":             `INSERT INTO "Ks".row_keys (metric) VALUES (?)`,
		"insert into t(a) values (?)":                          `insert into "Ks".t(a) values (?)`,
		"SELECT fromage FROM data_points WHERE key = ?":        `SELECT fromage FROM "Ks".data_points WHERE key = ?`,
		"DELETE FROM t USING TIMESTAMP 1 WHERE key = ?":        `DELETE FROM "Ks".t USING TIMESTAMP 1 WHERE key = ?`,
		"DELETE a FROM t WHERE key = ?":                        `DELETE a FROM "Ks".t WHERE key = ?`,
		"UPDATE x SET a = ? WHERE b = ?":                       `UPDATE "Ks".x SET a = ? WHERE b = ?`,
		"SELECT a FROM system.local WHERE key = 'local'":       "SELECT a FROM system.local WHERE key = 'local'",
		"CREATE KEYSPACE IF NOT EXISTS k WITH replication = {": "CREATE KEYSPACE IF NOT EXISTS k WITH replication = {",
	} {
		if got := (&Statement{Text: text}).qualified("Ks"); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestTableOfStatement(t *testing.T) {
	for text, want := range map[string]string{
		"INSERT INTO row_keys (metric) VALUES (?)":                  "row_keys",
		"insert into t(a) values (?)":                               "t",
		"SELECT a FROM data_points WHERE key = ?":                   "data_points",
		"DELETE FROM data_points WHERE key = ?":                     "data_points",
		"UPDATE x SET a = ? WHERE b = ?":                            "x",
		"CREATE TABLE IF NOT EXISTS spec (a int PRIMARY KEY)":       "spec",
		"CREATE KEYSPACE IF NOT EXISTS k WITH replication = {'a':1": "",
		"SELECT": "",
	} {
		if got := (&Statement{Text: text}).table(); got != want {
			t.Errorf("table of %q is %q, want %q", text, got, want)
		}
	}
}
