package clients

import (
	"net/http"
	"path/filepath"
	"testing"

	"varve/e2e/process"
)

// TestKairosJavaClientWithToken: the client shows a token that stands in its URL, once it was
// asked for one, and keeps its two connections; with another token it is told so, and keeps
// them too.
func TestKairosJavaClientWithToken(t *testing.T) {
	process.SkipShort(t)
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens.json")
	token := process.Token(t, file, "java", "read,write")
	s := process.Start(t, t.TempDir(), "--auth-enabled=true", "--auth-token-file="+file)
	stranger := startShell(t, "http://java:wrong@"+s.HTTP)
	for range 3 { // more often than it has connections
		if got := stranger.try("names", `{}`); got.Error == nil {
			t.Fatalf("a stranger is answered %s", got.OK)
		}
	}
	j := startShell(t, "http://java:"+token+"@"+s.HTTP)
	for range 3 {
		j.call("push", pushed)
	}
	if got, want := j.call("names", `{}`), `["j.m","j.s"]`; !sameJSON(t, got, want) {
		t.Errorf("names are %s, want %s", got, want)
	}
	askByJava(t, j)
	if got := j.try("deleteMetric", `"j.m"`); got.Error == nil || got.Status != http.StatusForbidden {
		t.Errorf("a token without the role delete: %d %s", got.Status, got.OK)
	}
	if got, want := j.call("names", `{}`), `["j.m","j.s","j.saved"]`; !sameJSON(t, got, want) {
		t.Errorf("at the end names are %s, want %s", got, want)
	}
}
