package main

import (
	"bytes"
	frames "encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// TestCarbon sends lines and a pickle as relays do, and reads the points by KairosDB's
// API: a path with tags is a metric with tags.
func TestCarbon(t *testing.T) {
	p := start(t, t.TempDir())
	now := time.Now().Unix()
	say := func(stream string, data []byte) {
		c, err := net.Dial("tcp", p.find(`carbon +(\S+) \(`+stream+`\)`))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write(data); err != nil {
			t.Fatal(err)
		}
		c.(*net.TCPConn).CloseWrite()
		if b, err := io.ReadAll(c); err != nil || len(b) > 0 { // the end comes when all is stored
			t.Fatalf("%s: answered %q, %v", stream, b, err)
		}
	}
	say("lines", fmt.Appendf(nil, "web.a.requests 1.5 %d\r\nweb..a.requests. 2.5 %d\nbroken\ndisk.used;host=b;dc=x 7 -1\n", now, now+1))
	pickle := fmt.Sprintf("(lp0\n(S'disk.used;dc=x;host=b'\np1\n(I%d\nF8.5\ntp2\ntp3\na.", now-10)
	say("pickles", append(frames.BigEndian.AppendUint32(nil, uint32(len(pickle))), pickle...))

	for query, want := range map[string]string{
		`"name":"web.a.requests"`:                         `"sample_size":2`,
		`"name":"disk.used","tags":{"host":"b","dc":"x"}`: `"sample_size":2`,
		`"name":"disk.used","tags":{"host":"c"}`:          `"sample_size":0`,
	} {
		body := `{"start_relative":{"value":1,"unit":"hours"},"end_absolute":9000000000000,"metrics":[{` + query + `}]}`
		answer, err := http.Post("http://"+p.http+"/api/v1/datapoints/query", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("%s: %s, want %s", query, text, want)
		}
	}
	answer, err := http.Get("http://" + p.http + "/admin/rejected")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(answer.Body)
	answer.Body.Close()
	if !bytes.Contains(text, []byte(`"reason": "bad_syntax"`)) {
		t.Errorf("/admin/rejected does not show the broken line: %s", text)
	}
	p.stop(os.Interrupt)
}
