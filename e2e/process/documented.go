package process

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Documented returns the configuration of a client from docs/clients.md, the
// block whose fence has a name, with the ports of s in place of the default
// ones. root is the directory that docs/ is in.
func (s *Server) Documented(t *testing.T, root, name string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "clients.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?ms)^```" + regexp.QuoteMeta(name) + "\n(.*?)^```").FindSubmatch(page)
	if block == nil {
		t.Fatalf("docs/clients.md has no block named %s", name)
	}
	_, http := HostPort(t, s.HTTP)
	_, telnet := HostPort(t, s.Telnet)
	return strings.NewReplacer("8080", http, "4242", telnet).Replace(string(block[1]))
}
