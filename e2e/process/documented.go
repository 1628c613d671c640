package process

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Documented returns the configuration of a client from docs/clients.md or
// docs/graphite.md, the block whose fence has a name, with the ports of s in place of
// the default ones. root is the parent directory of docs/.
func (s *Server) Documented(t *testing.T, root, name string) string {
	t.Helper()
	block := regexp.MustCompile("(?ms)^```" + regexp.QuoteMeta(name) + "\n(.*?)^```")
	for _, page := range []string{"clients.md", "graphite.md"} {
		text, err := os.ReadFile(filepath.Join(root, "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		if found := block.FindSubmatch(text); found != nil {
			return s.onItsPorts(t, string(found[1]))
		}
	}
	t.Fatalf("neither docs/clients.md nor docs/graphite.md has a block named %s", name)
	return ""
}

// onItsPorts replaces the default ports by those of s.
func (s *Server) onItsPorts(t *testing.T, text string) string {
	_, http := HostPort(t, s.HTTP)
	_, telnet := HostPort(t, s.Telnet)
	_, lines := HostPort(t, s.Carbon(t, "lines"))
	_, pickles := HostPort(t, s.Carbon(t, "pickles"))
	return strings.NewReplacer("8080", http, "4242", telnet, "2003", lines, "2004", pickles).Replace(text)
}
