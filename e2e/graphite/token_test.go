package graphite

import (
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"varve/e2e/process"
)

// A graphite-web reads from servers with authentication: to one it forwards the credentials
// of its user, the other has a rule for its address.
func TestFrontWithCredentials(t *testing.T) {
	process.SkipShort(t)
	file := filepath.Join(t.TempDir(), "tokens.json")
	token := process.Token(t, file, "grafana", "read")
	start := func(rule string) *process.Server {
		return process.Start(t, t.TempDir(), "--auth-enabled=true", "--auth-token-file="+file, "--auth-rules="+rule)
	}
	byToken := start("address=127.0.0.1 stream=carbon role=write")
	byAddress := start("address=127.0.0.1 stream=carbon+http role=read+write")
	now := time.Now().Add(-time.Minute).Unix()
	send(t, byToken, fmt.Sprintf("front.token 11 %d\n", now))
	send(t, byAddress, fmt.Sprintf("front.address 12 %d\n", now))
	f := startFront(t, byToken, fmt.Sprintf("CLUSTER_SERVERS = ['%s', '%s']\n", byToken.HTTP, byAddress.HTTP)+byToken.Documented(t, root, "python graphite-web token"))
	form := url.Values{"target": {"front.*"}, "from": {"-5min"}, "format": {"raw"}}
	if got := ask(t, &f.client, f.url, "GET", "/render", form); strings.Contains(string(got.body), "front.token") || !strings.Contains(string(got.body), "12.0") {
		t.Errorf("without a token: %d %s", got.status, got.body)
	}
	f.client.Transport = shows{f.client.Transport, token}
	if got := ask(t, &f.client, f.url, "GET", "/render", form); got.status != 200 || !strings.Contains(string(got.body), "11.0") || !strings.Contains(string(got.body), "12.0") {
		t.Errorf("with a token: %d %s", got.status, got.body)
	}
	byToken.Stop(t)
	byAddress.Stop(t)
}

// shows adds a token to each request, as the password of basic authentication.
type shows struct {
	http.RoundTripper
	token string
}

func (s shows) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.SetBasicAuth("grafana", s.token)
	return s.RoundTripper.RoundTrip(r)
}
