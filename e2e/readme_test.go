package e2e

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"varve/e2e/process"
)

// readmeCommands returns the commands of the README that talk to a server: the
// blocks fenced as sh (or as nothing) and the inline code that send or ask.
func readmeCommands(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	fenced := regexp.MustCompile("(?ms)^```(?:sh|bash)?[ \t]*\n(.*?)^```")
	inline := regexp.MustCompile("`([^`\n]+)`")
	var all []string
	for _, m := range fenced.FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1])
	}
	anyFence := regexp.MustCompile("(?ms)^```.*?^```")
	for _, m := range inline.FindAllStringSubmatch(anyFence.ReplaceAllString(string(text), ""), -1) {
		all = append(all, m[1])
	}
	var talking []string
	for _, c := range all {
		if addressOf.MatchString(c) && usesTool.MatchString(c) {
			talking = append(talking, strings.TrimSpace(c))
		}
	}
	return talking
}

var (
	addressOf = regexp.MustCompile(`(127\.0\.0\.1|localhost)([:/ ])(8080|4242)\b`)
	usesTool  = regexp.MustCompile(`\bcurl |\bnc |/dev/tcp/`)
)

// pointAt replaces the default addresses in a command by those of s.
func pointAt(t *testing.T, s *process.Server, command string) string {
	return addressOf.ReplaceAllStringFunc(command, func(address string) string {
		m := addressOf.FindStringSubmatch(address)
		server := s.HTTP
		if m[3] == "4242" {
			server = s.Telnet
		}
		host, port := process.HostPort(t, server)
		return host + m[2] + port
	})
}

func runShell(t *testing.T, command string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-c", command)
	shell.Dir = t.TempDir()
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%s\n%v: %s", command, err, out)
	}
	return string(out)
}

// TestReadme follows the README as a newcomer does: each way of sending a point
// that it shows is tried on a fresh server. Then each query that it shows must
// be answered, also after kill -9.
func TestReadme(t *testing.T) {
	process.SkipShort(t)
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("*** THE README'S COMMANDS ARE NOT TESTED: no bash ***")
	}
	var sends, queries, others []string
	for _, c := range readmeCommands(t) {
		switch {
		case strings.Contains(c, "/datapoints/query"):
			queries = append(queries, c)
		case strings.Contains(c, "put ") || strings.Contains(c, "/datapoints"):
			sends = append(sends, c)
		default:
			others = append(others, c)
		}
	}
	shown := strings.Join(sends, "\n")
	if len(queries) < 2 || !strings.Contains(shown, "nc ") || !strings.Contains(shown, "curl ") {
		t.Errorf("the README no longer shows how to send a point with nc and with curl and two queries: sends %q, queries %q", sends, queries)
	}
	for _, send := range sends {
		tool := usesTool.FindString(send)
		t.Run(strings.Trim(tool, "/ "), func(t *testing.T) {
			if tool == "nc " {
				if _, err := exec.LookPath("nc"); err != nil {
					t.Skipf("*** NOT TESTED, there is no nc: %s ***", send)
				}
			}
			followReadme(t, send, queries, others)
		})
	}
}

func followReadme(t *testing.T, send string, queries, others []string) {
	needCurl(t)
	dir := t.TempDir()
	s := process.Start(t, dir)
	answer := runShell(t, pointAt(t, s, send))
	if strings.Contains(send, "curl -i") && !strings.Contains(answer, " 204 ") {
		t.Errorf("%s\nanswered %s", send, answer)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, q := range queries {
		err := process.Until(ctx, "answer with a point to "+q, func() (bool, error) {
			return strings.Contains(runShell(t, pointAt(t, s, q)), `"values":[[`), nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	for _, c := range others {
		runShell(t, pointAt(t, s, c))
	}
	if _, err := s.Want(ctx, http.StatusNoContent, "GET", "/api/v1/health/check", ""); err != nil {
		t.Error(err)
	}
	s.Kill()
	s = process.Start(t, dir)
	for _, q := range queries {
		if answer := runShell(t, pointAt(t, s, q)); !strings.Contains(answer, `"values":[[`) {
			t.Errorf("after kill -9, %s\nanswered %s", q, answer)
		}
	}
	s.Stop(t)
}

func needCurl(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("*** THE README'S COMMANDS ARE NOT TESTED: no curl ***")
	}
}
