package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"varve/internal/clip"
	"varve/internal/remote"
	"varve/internal/server"
	"varve/internal/work"
)

var healthCommand = command{
	name:     "health",
	synopsis: "check the health of a running server",
	usage:    "[--url URL] [--wait] [FLAGS]",
	help: `Checks the health of a server. The exit status is 0 if it is healthy, 1 if it is not. Without
--url it checks the server that serve would start on this machine with the same flags,
--config and environment. The container image and the Debian package use it as their health
check.

Flags:
  --url URL   the server, for example http://10.0.0.5:8080. If it is an https:// URL, the variable
              VARVE_CA_FILE may name a file with the authority of the server's certificate
  --wait      if the server is still opening its store, wait until it is healthy, however
              long that takes; give up when no server has answered for 30 s
`,
	run: health,
}

const (
	healthTimeout = 10 * time.Second // of one request; the server's own checks have 5 s
	healthPause   = 200 * time.Millisecond
	healthSilence = 30 * time.Second // without a listener, until --wait gives up
)

func health(t terminal, args []string) error {
	base, own, wait, err := healthTarget(t, args)
	if err != nil {
		return err
	}
	client, err := healthClient(own)
	if err != nil {
		return err
	}
	flag := "--url"
	if own {
		flag = "--http-addr"
	}
	if wait {
		err = waitHealthy(context.Background(), client, base, flag)
	} else {
		_, err = askHealth(client, base, flag)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(t.stdout, "%s is healthy%s\n", base, failedChecks(client, base)) // checks that concern only a part of the data
	return err
}

// healthTarget returns the URL of the server to ask, without a path. own reports whether
// it is the server that the settings describe.
func healthTarget(t terminal, args []string) (base string, own, wait bool, err error) {
	settings, l, err := splitLine(args, "url", "wait?")
	if err := cmp.Or(err, l.noWords()); err != nil {
		return "", false, false, err
	}
	wait = l.flags["wait"] != ""
	text, given := l.flags["url"]
	if !given {
		loaded, err := load(t, settings)
		if err != nil {
			return "", false, false, err
		}
		return healthBase(loaded.Config.Server), true, wait, nil
	}
	if len(settings) > 0 {
		if _, err := load(t, settings); err != nil {
			return "", false, false, err
		}
		return "", false, false, &usageError{fmt.Errorf("flags --url and %s: give one of them; with --url, settings are not read", settings[0])}
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return "", false, false, &usageError{fmt.Errorf("flag --url: %q: want http://host:port or https://host:port", text)}
	}
	return u.Scheme + "://" + u.Host, false, wait, nil
}

// healthBase is the URL of a server on this machine with these settings.
func healthBase(c server.Config) string {
	return scheme(c.TLS.Speaks("http")) + remote.Dialable(c.HTTPAddr)
}

// healthClient makes requests for the server's health. If the settings of this machine describe
// the server, its certificate is not verified: it need not name the address, the request contains
// no secret, and the answer is one bit. The certificate of another server is verified, by the
// authority that the environment names, if it names one.
func healthClient(own bool) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if own {
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	} else if trusting, err := remote.Trusting(); err != nil {
		return nil, err
	} else if trusting != nil {
		transport = trusting
	}
	return &http.Client{Timeout: healthTimeout, Transport: transport}, nil
}

// waitHealthy returns when the server is healthy. It has no limit of its own while the server
// answers that it is not: the caller bounds how long a store may take to open.
func waitHealthy(ctx context.Context, client *http.Client, base, flag string) error {
	heard := time.Now()
	for {
		status, err := askHealth(client, base, flag)
		switch {
		case err == nil:
			return nil
		case status >= http.StatusInternalServerError:
			heard = time.Now()
		case status != 0: // a starting server would not answer like this: waiting does not help
			return err
		case time.Since(heard) > healthSilence:
			return fmt.Errorf("no server has answered for %s: %w", healthSilence, err)
		}
		if err := work.Pause(ctx, healthPause); err != nil {
			return err
		}
	}
}

// askHealth returns nil if the server is healthy, and the status of its answer, 0 without one.
// flag is the one that names another server.
func askHealth(client *http.Client, base, flag string) (status int, err error) {
	response, err := client.Get(base + "/api/v1/health/check")
	if err != nil {
		return 0, fmt.Errorf("ask %s for its health: %w", base, remote.Unreached(err, flag))
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusNoContent:
		return response.StatusCode, nil
	case http.StatusBadRequest: // perhaps the port speaks TLS; the answer then says so
		var answer struct {
			Errors []string `json:"errors"`
		}
		_ = json.NewDecoder(io.LimitReader(response.Body, 64<<10)).Decode(&answer)
		text := strings.Join(answer.Errors, "; ")
		if strings.HasPrefix(text, remote.PlainFault) {
			return response.StatusCode, fmt.Errorf("ask %s for its health: %s; use --url %s, or the settings of the server, for example its --config", base, remote.PlainFault, "https"+strings.TrimPrefix(base, "http"))
		}
		return response.StatusCode, fmt.Errorf("ask %s for its health: %s %s", base, response.Status, clip.Text(text, 200))
	}
	return response.StatusCode, fmt.Errorf("%s is not healthy: %s%s", base, response.Status, failedChecks(client, base))
}

// failedChecks lists the checks that the status of a server does not report as OK.
func failedChecks(client *http.Client, base string) string {
	response, err := client.Get(base + "/api/v1/health/status")
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	var lines []string
	if json.NewDecoder(io.LimitReader(response.Body, 64<<10)).Decode(&lines) != nil {
		return ""
	}
	var failed []string
	for _, line := range lines {
		if !strings.HasSuffix(line, ": OK") {
			failed = append(failed, clip.Text(line, 300))
		}
	}
	if len(failed) == 0 {
		return ""
	}
	return "; " + strings.Join(failed[:min(len(failed), 10)], "; ")
}
