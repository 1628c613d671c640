package hostile

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Requests whose framing contradicts itself are refused or cut; none is taken
// for two requests, and none leaves a connection that waits.
func TestLyingLengths(t *testing.T) {
	w := guard(t, quick...)
	body := `[{"name":"lie","tags":{"a":"b"},"timestamp":1700000000000,"value":1}]`
	smuggled := strings.Replace(body, "lie", "smuggled", 1)
	second := fmt.Sprintf("POST /api/v1/datapoints HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", w.HTTP, len(smuggled), smuggled)
	heads := map[string]string{
		"negative":               "Content-Length: -1\r\n\r\n" + body,
		"not a number":           "Content-Length: 1e3\r\n\r\n" + body,
		"beyond 64 bits":         "Content-Length: 99999999999999999999\r\n\r\n" + body,
		"two lengths":            fmt.Sprintf("Content-Length: %d\r\nContent-Length: 5\r\n\r\n%s", len(body), body),
		"length and chunks":      fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s", len(second), second),
		"chunks and a length":    "transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n" + second,
		"chunks twice":           "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
		"unknown coding":         "Transfer-Encoding: zip\r\n\r\n" + body,
		"chunk size of 17 digit": "Transfer-Encoding: chunked\r\n\r\n11111111111111111\r\n" + body,
		"chunk size negative":    "Transfer-Encoding: chunked\r\n\r\n-5\r\n" + body,
		"endless extension":      "Transfer-Encoding: chunked\r\n\r\n5;" + strings.Repeat("a", 100_000),
		"expects 100":            "Content-Length: 100000\r\nExpect: 100-continue\r\n\r\n",
		"header of 1 MiB":        "X-Long: " + strings.Repeat("a", 1<<20) + "\r\n\r\n",
		"100,000 headers":        strings.Repeat("A: b\r\n", 100_000) + "\r\n",
		"space before the colon": "Content-Length : 5\r\n\r\nhello",
		"not gzip":               fmt.Sprintf("Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(body), body),
	}
	w.under(100*mib, func(ctx context.Context) {
		for name, head := range heads {
			c, err := connect(ctx, w.HTTP)
			if err != nil {
				t.Fatal(err)
			}
			c.say(fmt.Sprintf("POST /api/v1/datapoints HTTP/1.1\r\nHost: %s\r\n%s", w.HTTP, head))
			if status, answer, err := c.status(5 * time.Second); err == nil && status < 400 && status != 100 {
				t.Errorf("%s: status %d: %.200s", name, status, answer)
			}
			if err := c.cut(10 * time.Second); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			c.Close()
		}
		for _, line := range []string{"OPTIONS * HTTP/1.1", "POST /api/v1/datapoints HTTP/1.0\r\nConnection: keep-alive"} { // net/http answers one itself, and goes by the length of the other
			c, err := connect(ctx, w.HTTP)
			if err != nil {
				t.Fatal(err)
			}
			c.say(fmt.Sprintf("%s\r\nHost: %s\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s", line, w.HTTP, second))
			if err := c.cut(10 * time.Second); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			c.Close()
		}
		if names, err := w.MetricNames(ctx, "smuggled"); err != nil || len(names) > 0 {
			t.Errorf("a request inside another one was served: %q, %v", names, err)
		}
	})
}

// Bytes that are no HTTP cost their connection, and bytes that are no telnet command
// cost their line.
func TestNoise(t *testing.T) {
	w := guard(t, quick...)
	noises := []string{
		strings.Repeat("\x00", 1<<20), strings.Repeat("\xff\xfe", 1<<19), "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", "put a 1 1 b=c\r\nput a 2 2 b=c\r\n",
		"GET " + strings.Repeat("/", 200_000) + " HTTP/1.1\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 2000),
		strings.Repeat("put ", 300_000), strings.Repeat("put a 1 1 ", 1000) + "\n", strings.Repeat("\n", 1<<20), strings.Repeat("\r", 1<<20),
		"put " + strings.Repeat("n", 60_000) + " 1 1 a=b\n", "put a 1 1" + strings.Repeat(" a=b", 15_000) + "\n",
		"put a 1 1" + strings.Repeat(" ==", 20_000) + "\n", "version\n" + strings.Repeat("version\n", 100_000),
	}
	w.under(150*mib, func(ctx context.Context) {
		crowd(2*len(noises), func(i int) {
			c, err := connect(ctx, []string{w.HTTP, w.Telnet}[i%2])
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			c.say(noises[i/2])
		})
	})
}
