package e2e

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"varve/e2e/process"
	"varve/internal/server/tlstest"
)

// TestCertificatesSwapped changes the server's certificate while points come in over TLS, by
// HTTP with a token and by telnet with client certificates. No point is lost, connections
// that are open stay so, and the last certificate is the one that is shown.
func TestCertificatesSwapped(t *testing.T) {
	process.SkipShort(t)
	const swaps, senders, batches = 5, 3, 30
	s := process.StartSecured(t, t.TempDir(), "cn=collector-* role=write")
	serial := func() string {
		c, err := tls.Dial("tcp", s.HTTP, s.CA.Client(""))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	before := serial()
	const start = 1_700_000_000_000
	var sending sync.WaitGroup
	for n := range senders {
		sending.Go(func() {
			each := s.Afresh() // so that each request makes a handshake
			for i := range batches {
				body := fmt.Sprintf(`[{"name":"by.http","tags":{"sender":"%d"},"timestamp":%d,"value":1}]`, n, start+i)
				if _, err := each.Want(t.Context(), 204, "POST", "/api/v1/datapoints", body); err != nil {
					t.Error(err)
				}
			}
		})
		sending.Go(func() {
			c, err := s.DialTelnet(fmt.Sprint("collector-", n))
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			for i := range batches {
				if _, err := fmt.Fprintf(c, "putm by.telnet %d 1 sender=%d\n", start+i, n); err != nil {
					t.Error(err)
				}
			}
			fmt.Fprint(c, "version\n")
			c.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := c.Read(make([]byte, 100)); err != nil { // all lines sent before are stored
				t.Error(err)
			}
		})
	}
	for range swaps {
		s.NewCertificate(t)
		if answer, err := s.Want(t.Context(), 200, "POST", "/admin/reload", ""); err != nil {
			t.Errorf("%v %s", err, answer)
		}
	}
	sending.Wait()
	if after := serial(); after == before {
		t.Error("the certificate is still the first one")
	}
	for _, metric := range []string{"by.http", "by.telnet"} {
		results, err := s.Query(t.Context(), fmt.Sprintf(`{"start_absolute":%d,"metrics":[{"name":%q,"aggregators":[{"name":"count","sampling":{"value":1,"unit":"days"}}]}]}`, start, metric))
		if err != nil {
			t.Fatal(err)
		}
		if len(results) != 1 || len(results[0].Values) != 1 || string(results[0].Values[0][1]) != strconv.Itoa(senders*batches) {
			t.Errorf("%s: %+v, want %d points", metric, results, senders*batches)
		}
	}
	if c, err := s.DialTelnet("visitor"); err == nil { // no rule applies to it
		c.SetDeadline(time.Now().Add(time.Minute))
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("a visitor gets %d bytes", n)
		}
		c.Close()
	}
	s.Stop(t)
}

// TestAuthorityRemoved takes an authority of client certificates out of its file. After a
// reload, a timeline that is followed by a certificate of it is cut off, and connections of
// telnet and carbon are closed.
func TestAuthorityRemoved(t *testing.T) {
	process.SkipShort(t)
	s := process.StartSecured(t, t.TempDir(), "cn=reader role=read,cn=collector role=write")
	reader := &http.Client{Transport: &http.Transport{TLSClientConfig: s.CA.Client("reader")}}
	defer reader.CloseIdleConnections()
	tail, err := reader.Get("https://" + s.HTTP + "/api/v1/timelines/deploys/tail")
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Body.Close()
	events := bufio.NewReader(tail.Body)
	if line, err := events.ReadString('\n'); err != nil || tail.StatusCode != 200 {
		t.Fatalf("%s %q %v", tail.Status, line, err)
	}
	lines := map[string]*tls.Conn{"telnet": nil, "carbon": nil}
	for name, address := range map[string]string{"telnet": s.Telnet, "carbon": s.Carbon(t, "lines")} {
		c, err := tls.Dial("tcp", address, s.CA.Client("collector"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := fmt.Fprintf(c, "put by.telnet 1700000000 1 h=a\nby.carbon 1 1700000000\n"); err != nil {
			t.Fatal(err)
		}
		lines[name] = c
	}
	err = process.Until(t.Context(), "points", func() (bool, error) {
		names, err := s.MetricNames(t.Context(), "by.")
		return len(names) == len(lines), err
	})
	if err != nil {
		t.Fatal(err)
	}

	tlstest.Write(t, s.Files, map[string][]byte{"ca": tlstest.NewAuthority(t).PEM})
	if answer, err := s.Want(t.Context(), 200, "POST", "/admin/reload", ""); err != nil {
		t.Fatalf("%v %s", err, answer)
	}
	if rest, err := io.ReadAll(events); err == nil {
		t.Errorf("the timeline comes to its end: %q", rest)
	}
	for name, c := range lines {
		if got, err := io.ReadAll(c); len(got) > 0 {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	m, err := s.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"http", "telnet", "carbon"} {
		if got := m[fmt.Sprintf("varve_auth_ended_total{stream=%q}", name)]; got != 1 {
			t.Errorf("%v of %s were ended, want 1", got, name)
		}
	}
	s.Stop(t)
}
