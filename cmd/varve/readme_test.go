package main

import (
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

var fenced = regexp.MustCompile("(?s)```\n(.*?)\n```")

// TestReadme types what README.md tells a newcomer to type, in its order, with
// the ports of a server of its own.
func TestReadme(t *testing.T) {
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("README NOT TESTED: no %s on this machine", tool)
		}
	}
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, t.TempDir())
	carbon := p.find(`carbon +(\S+) \(lines\)`)
	here := strings.NewReplacer("127.0.0.1:8080", p.http, "127.0.0.1 4242", dialed(t, p.telnet, " "), "127.0.0.1 2003", dialed(t, carbon, " "),
		"127.0.0.1/4242", dialed(t, p.telnet, "/"), "127.0.0.1/2003", dialed(t, carbon, "/"))
	lines, queries, rendered := 0, 0, 0
	for _, block := range fenced.FindAllStringSubmatch(string(page), -1) {
		script := block[1]
		isLine, isQuery, isRender := strings.Contains(script, "| nc "), strings.Contains(script, "/datapoints/query"), strings.Contains(script, "/render?")
		if !isLine && !strings.HasPrefix(script, "curl") {
			continue
		}
		if _, err := exec.LookPath("nc"); isLine && err != nil {
			t.Log("no nc on this machine; bash opens the connection")
			script = netcat.ReplaceAllString(script, "> /dev/tcp/$1/$2")
		}
		out, err := exec.Command("bash", "-ec", here.Replace(script)).Output()
		for wait := 0; isRender && err == nil && wait < 100 && !strings.Contains(string(out), "[720.0, "); wait++ {
			time.Sleep(20 * time.Millisecond) // the line is stored when its connection ends, soon after
			out, err = exec.Command("bash", "-ec", here.Replace(script)).Output()
		}
		if err != nil {
			t.Fatalf("%s\n%v: %s", script, err, out)
		}
		switch {
		case strings.Contains(script, "/timelines/"):
			if !strings.Contains(string(out), `"type":"deploy","data":{"service":"web","version":41}}`) {
				t.Errorf("%s\nno event in %s", script, out)
			}
		case isRender:
			rendered++
			if !strings.Contains(string(out), "[720.0, ") {
				t.Errorf("%s\nno point in %s", script, out)
			}
		case isLine:
			lines++
			p.values("demo.load", lines)
		case isQuery:
			queries++
			if !strings.Contains(string(out), `"values":[[`) {
				t.Errorf("%s\nno point in %s", script, out)
			}
		case !strings.HasPrefix(string(out), "HTTP/1.1 204"):
			t.Errorf("%s\n%s", script, out)
		}
	}
	if lines != 1 || queries != 2 || rendered != 1 {
		t.Errorf("found %d lines, %d queries and %d targets to type, want 1, 2 and 1", lines, queries, rendered)
	}
	p.values("demo.load", 2)
}

var netcat = regexp.MustCompile(`\| nc -w 1 (\S+) (\S+)`)

// dialed is an address as host and port, with something else than a colon between.
func dialed(t *testing.T, addr, between string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return host + between + port
}
