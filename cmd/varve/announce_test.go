package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"varve/internal/config"
	"varve/internal/server"
	"varve/internal/server/tlstest"
)

// TestAnnounceOverTLS types what a server with TLS tells a newcomer to type. Its certificate is of
// an authority that the machine does not know.
func TestAnnounceOverTLS(t *testing.T) {
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("not tested: no %s on this machine", tool)
		}
	}
	cert, key := tlstest.NewAuthority(t).Issue("varve")
	c, dir := config.Default(), t.TempDir()
	c.Server.TLS.CertFile, c.Server.TLS.KeyFile = filepath.Join(dir, "a certificate.pem"), filepath.Join(dir, "key.pem")
	if err := errors.Join(os.WriteFile(c.Server.TLS.CertFile, cert, 0o600), os.WriteFile(c.Server.TLS.KeyFile, key, 0o600)); err != nil {
		t.Fatal(err)
	}
	c.Server.HTTPAddr, c.Server.TelnetAddr, c.Server.CarbonAddr, c.Server.PickleAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	c.Server.PprofAddr, c.Server.CarbonUDPAddr = "127.0.0.1:0", "127.0.0.1:0"
	srv := mountedServer(t, c)
	defer runServer(t, srv)()
	var said strings.Builder
	announce(&said, c, srv)
	var out string
	for line := range strings.Lines(said.String()) {
		if command := strings.TrimSpace(line); strings.HasPrefix(command, "curl") {
			text, err := exec.Command("bash", "-ec", command).CombinedOutput()
			if err != nil {
				t.Errorf("%s\n%v: %s", command, err, text)
			}
			out = string(text)
		}
	}
	if !strings.Contains(out, ",1.5]]") {
		t.Errorf("no point in %q after\n%s", out, &said)
	}
	if !strings.Contains(said.String(), "telnet  "+srv.Addr("telnet")+" (TLS)\n") {
		t.Errorf("telnet is not said to use TLS:\n%s", &said)
	}
	for _, stream := range server.StreamNames() {
		if !strings.Contains(said.String(), srv.Addr(stream)) {
			t.Errorf("%s is not announced:\n%s", stream, &said)
		}
	}
	if want := "https://" + srv.Addr("pprof") + "/debug/pprof/\n"; !strings.Contains(said.String(), want) {
		t.Errorf("want %q:\n%s", want, &said)
	}
}
