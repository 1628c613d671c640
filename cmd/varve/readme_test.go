package main

import (
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
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
	host, port, err := net.SplitHostPort(p.telnet)
	if err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer("127.0.0.1:8080", p.http, "127.0.0.1 4242", host+" "+port)
	lines, queries := 0, 0
	for _, block := range fenced.FindAllStringSubmatch(string(page), -1) {
		script := block[1]
		isLine, isQuery := strings.Contains(script, "| nc "), strings.Contains(script, "/datapoints/query")
		if !isLine && !strings.HasPrefix(script, "curl") {
			continue
		}
		if _, err := exec.LookPath("nc"); isLine && err != nil {
			t.Log("no nc on this machine; bash opens the connection")
			before, _, _ := strings.Cut(script, "| nc ")
			script = before + "> /dev/tcp/127.0.0.1/4242"
			here = strings.NewReplacer("127.0.0.1:8080", p.http, "127.0.0.1/4242", host+"/"+port)
		}
		out, err := exec.Command("bash", "-ec", here.Replace(script)).Output()
		if err != nil {
			t.Fatalf("%s\n%v: %s", script, err, out)
		}
		switch {
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
	if lines != 1 || queries != 2 {
		t.Errorf("found %d lines and %d queries to type, want 1 and 2", lines, queries)
	}
	p.values("demo.load", 2)
}
