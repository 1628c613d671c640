package hostile

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Every path takes every method with every kind of body, in order or not, and
// answers with a status that says whose fault it is.
func TestEveryPathWithEverything(t *testing.T) { bySenders(t, nil, everything) }

func everything(t *testing.T, w *ward) {
	bodies := []string{"", "null", "[]", "{}", `""`, "0", "[[[[", "{\"", "\x00", "\xff\xfe", `{"a":`, "[null]", `[{}]`, `{"metrics":null,"start_absolute":0}`, `{"metrics":[null],"start_absolute":0}`,
		`{"metrics":[{}],"start_absolute":0}`, `{"metrics":[{"name":null}],"start_absolute":0}`, `{"metrics":[{"name":1,"tags":1}],"start_absolute":0}`, `{"start_absolute":{},"metrics":{}}`,
		`[{"name":"","tags":{},"datapoints":[]}]`, `{"name":null,"rollups":null,"execution_interval":null}`, strings.Repeat(" ", 10_000), "\ufeff{}"}
	methods := []string{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "POſT", "X-" + strings.Repeat("Y", 500)}
	queries := []string{"", "?", "?query=", "?query=%00", "?limit=x&cursor=%ff&prefix=%ff&pattern=(((", "?a=b;c=d&&&=", "?top=-1&n=-1&partial=maybe&trace=%"}
	w.under(200*mib, func(ctx context.Context) {
		n := 0
		for _, p := range paths {
			_, path, _ := strings.Cut(p, " ")
			for i, method := range methods {
				for j, body := range bodies {
					if path == "/admin/backup" && method == "POST" {
						continue // it may do what it is for
					}
					query := queries[(i+j)%len(queries)]
					c, err := connect(ctx, w.HTTP)
					if err != nil {
						t.Fatal(err)
					}
					c.say(fmt.Sprintf("%s %s%s HTTP/1.1\r\nHost: %s\r\n%sConnection: close\r\nContent-Length: %d\r\n\r\n%s", method, path, query, w.HTTP, w.shows, len(body), body))
					c.SetReadDeadline(time.Now().Add(5 * time.Second))
					status, answer, err := c.status(5 * time.Second)
					if err != nil && method != "HEAD" && status == 0 {
						t.Errorf("%s %s%s with %.40q: no answer: %v", method, path, query, body, err)
					}
					if status >= 500 && status != http.StatusServiceUnavailable && status != http.StatusNotImplemented {
						t.Errorf("%s %s%s with %.40q: status %d: %.200s", method, path, query, body, status, answer)
					}
					w.turnsAway(method, path, status)
					c.Close()
					n++
				}
			}
		}
		t.Logf("%d requests", n)
	})
}

// Questions that take long end with the client that asked, and leave room for
// short ones while they run.
func TestClientsThatLeave(t *testing.T) {
	w := guard(t)
	w.wide()
	questions := []string{
		`{"start_absolute":0,"metrics":[{"name":"wide","aggregators":[{"name":"gaps","sampling":{"value":1,"unit":"milliseconds"}},{"name":"count","sampling":{"value":1000,"unit":"years"}}]}]}`,
		`{"start_absolute":0,"metrics":[{"name":"wide","aggregators":[{"name":"percentile","percentile":0.5,"sampling":{"value":1,"unit":"milliseconds"}},{"name":"sma","size":100000}]}]}`,
		`{"start_absolute":0,"metrics":[{"name":"wide","aggregators":[{"name":"gaps","sampling":{"value":1,"unit":"milliseconds"}},{"name":"filter","filter_op":"ne","threshold":"x"},{"name":"first","sampling":{"value":1000,"unit":"years"}}]}]}`,
		`{"start_absolute":0,"metrics":[` + strings.TrimSuffix(strings.Repeat(`{"name":"wide","group_by":[{"name":"value","range_size":1}]},`, 100), ",") + `]}`,
		`{"start_absolute":0,"metrics":[{"name":"wide","tags":{"host":"regex:` + strings.Repeat("(a*)*", 200) + `b"}}]}`,
	}
	w.under(900*mib, func(ctx context.Context) {
		crowd(10, func(i int) {
			for end := time.Now().Add(*attackFor); time.Now().Before(end); {
				w.post(ctx, "/api/v1/datapoints/query", []byte(questions[i%len(questions)]), false, 500*time.Millisecond)
			}
		})
	})
}
