package hostile

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// answerMax bounds what any of the bombs may be answered with: the points of
// wide, and a little, each time that it asks for them.
const answerMax = 24 * mib

// bombMemory is what all bombs together may take: ingest.body_memory, four
// import lines of 64 MiB, and as much again as garbage.
const bombMemory = (256 + 4*64) * 2 * mib

// A bomb is an input that is small to send and large or slow to deal with.
type bomb struct {
	name, path string
	body       []byte
	gz         bool
}

func repeat(before, part, after string, n int) []byte {
	return []byte(before + strings.TrimSuffix(strings.Repeat(part, n), ",") + after)
}

func numbered(before, format, after string, n int) []byte {
	var b bytes.Buffer
	b.WriteString(before)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, format, i)
	}
	b.WriteString(after)
	return b.Bytes()
}

func bombs() []bomb {
	const in, ask, drop, put, roll, load = "/api/v1/datapoints", "/api/v1/datapoints/query", "/api/v1/datapoints/delete", "/api/put", "/api/v1/rollups", "/api/v1/import"
	metric := func(members string) []byte {
		return []byte(`{"start_absolute":0,"metrics":[{"name":"wide",` + members + `}]}`)
	}
	name := strings.Repeat("n", 256<<10)
	all := []bomb{
		{"zeros", in, packed(make([]byte, 100*mib)), true},
		{"spaces", in, packed(bytes.Repeat([]byte(" "), 100*mib)), true},
		{"gzip in gzip", in, packed(packed(make([]byte, 100*mib))), true},
		{"a long name with 1,000 faults", in, packed(repeat(`[{"name":"`+name+`","tags":{"a":"b"},"datapoints":[`, "[1],", "]}]", 1000)), true},
		{"a long name by OpenTSDB", put, packed(repeat("[", `{"metric":"`+name[:4096]+`","timestamp":"x","value":1,"tags":{"a":"b"}},`, "]", 10_000)), true},
		{"200,000 tags", in, packed(numbered(`[{"name":"t","timestamp":1,"value":1,"tags":{`, `"t%d":"v"`, "}}]", 200_000)), true},
		{"200,000 tags by OpenTSDB", put, packed(numbered(`[{"metric":"t","timestamp":1,"value":1,"tags":{`, `"t%d":"v"`, "}}]", 200_000)), true},
		{"a million faults", in, packed(repeat(`[{"name":"m","tags":{"a":"b"},"datapoints":[`, `[1],`, "]}]", 1_000_000)), true},
		{"a million bad metrics", in, packed(repeat("[", "{},", "]", 1_000_000)), true},
		{"a million series", in, packed(numbered("[", `{"name":"m","tags":{"a":"v%d"},"timestamp":1,"value":1}`, "]", 300_000)), true},
		{"a long number", in, []byte(`[{"name":"m","tags":{"a":"b"},"timestamp":1,"value":1` + strings.Repeat("0", 1<<20) + `}]`), false},
		{"a deep exponent", in, []byte(`[{"name":"m","tags":{"a":"b"},"timestamp":1,"value":1e-` + strings.Repeat("9", 1<<20) + `}]`), false},
		{"import of one line", load, packed(bytes.Repeat([]byte("a"), 60*mib)), true},
		{"import of empty lines", load, packed(bytes.Repeat([]byte("\n"), 60*mib)), true},
	}
	for _, path := range []string{in, ask, ask + "/tags", drop, put, roll, load} {
		all = append(all,
			bomb{"lists in lists " + path, path, bytes.Repeat([]byte("["), 900_000), false},
			bomb{"objects in objects " + path, path, bytes.Repeat([]byte(`{"a":`), 180_000), false},
			bomb{"50,000 members " + path, path, numbered("{", `"m%d":1`, "}", 50_000), false},
			bomb{"one member 80,000 times " + path, path, repeat("{", `"metrics":[],`, `"a":1}`, 70_000), false},
			bomb{"escapes " + path, path, []byte(`{"` + strings.Repeat(`\u0041`, 150_000) + `":1}`), false})
	}
	return append(all,
		bomb{"30,000 metrics", ask, repeat(`{"start_absolute":0,"metrics":[`, `{"name":"wide"},`, "]}", 30_000), false},
		bomb{"20,000 aggregators", ask, metric(`"aggregators":[` + strings.TrimSuffix(strings.Repeat(`{"name":"scale","factor":2},`, 20_000), ",") + `]`), false},
		bomb{"20,000 group-bys", ask, metric(`"group_by":[` + strings.TrimSuffix(strings.Repeat(`{"name":"value","range_size":2},`, 20_000), ",") + `]`), false},
		bomb{"50,000 filter values", ask, numbered(`{"start_absolute":0,"metrics":[{"name":"wide","tags":{"host":[`, `"h%d"`, `]}}]}`, 50_000), false},
		bomb{"costly patterns", ask, repeat(`{"start_absolute":0,"metrics":[{"name":"wide","tags":{"host":[`, `"regex:(?:a?){1000}",`, `]}}]}`, 20), false},
		bomb{"nested counts", ask, metric(`"tags":{"host":"regex:((a{100}){100}){100}"}`), false},
		bomb{"alternatives", ask, metric(`"tags":{"host":"regex:` + strings.Repeat("(a|b)*", 20_000) + `"}`), false},
		bomb{"gaps without data", ask, []byte(`{"start_absolute":0,"metrics":[{"name":"none","aggregators":[{"name":"gaps","sampling":{"value":1,"unit":"milliseconds"}},{"name":"count","sampling":{"value":1000,"unit":"years"}}]}]}`), false},
		bomb{"gaps before 1970", ask, []byte(`{"start_absolute":-9223372036854775808,"metrics":[{"name":"wide","aggregators":[{"name":"gaps","sampling":{"value":1,"unit":"milliseconds"}}]}]}`), false},
		bomb{"gaps to the end", ask, []byte(`{"start_absolute":0,"end_absolute":9223372036854775807,"metrics":[{"name":"wide","aggregators":[{"name":"gaps","sampling":{"value":1,"unit":"seconds"}},{"name":"last","sampling":{"value":1,"unit":"years"}}]}]}`), false},
		bomb{"months for ever", ask, []byte(`{"start_absolute":-9223372036854775808,"end_absolute":9223372036854775807,"metrics":[{"name":"wide","aggregators":[{"name":"gaps","sampling":{"value":1,"unit":"months"}},{"name":"filter","filter_op":"ne","threshold":1}]}]}`), false},
		bomb{"groups of time", ask, metric(`"group_by":[{"name":"time","range_size":{"value":1,"unit":"milliseconds"},"group_count":2147483647}]`), false},
		bomb{"groups of value", ask, metric(`"group_by":[{"name":"value","range_size":1}]`), false},
		bomb{"differences of single points", ask, metric(`"group_by":[{"name":"time","range_size":{"value":1,"unit":"milliseconds"},"group_count":2147483647}],"aggregators":[` +
			strings.TrimSuffix(strings.Repeat(`{"name":"diff"},`, 200), ",") + `]`), false},
		bomb{"long names of tags to group by", ask, metric(`"group_by":[{"name":"tag","tags":["host","` + name[:64<<10] + `"]}]`), false},
		bomb{"bins", ask, numbered(`{"start_absolute":0,"metrics":[{"name":"wide","group_by":[{"name":"bin","bins":[`, "%d", `]}]}]}`, 100_000), false},
		bomb{"sma of all", ask, metric(`"aggregators":[{"name":"sma","size":2147483647}]`), false},
		bomb{"points saved 200 times", ask, numbered(`{"start_absolute":0,"metrics":[{"name":"wide","aggregators":[`, `{"name":"save_as","metric_name":"copy%d"}`, `]}]}`, 200), false},
		bomb{"tasks", roll, numbered(`{"name":"r","execution_interval":{"value":1,"unit":"hours"},"rollups":[`, `{"save_as":"s%d"}`, `]}`, 30_000), false},
	)
}

// Each bomb is thrown several times at once, by clients that leave after a
// while.
func TestBombs(t *testing.T) { bySenders(t, nil, throwBombs) }

func throwBombs(_ *testing.T, w *ward) {
	w.wide()
	for _, b := range bombs() {
		w.part(b.name, bombMemory, func(ctx context.Context) {
			crowd(4, func(int) {
				status, answer, err := w.post(ctx, b.path, b.body, b.gz, *attackFor)
				w.blames(status, answer, err)
				if len(answer) > answerMax*max(1, bytes.Count(b.body, []byte(`"name":"wide"`))) {
					w.t.Errorf("an input of %d bytes is answered with %d", len(b.body), len(answer))
				}
			})
		})
	}
}

// Many large requests at once, which wait to be parsed and hold much once they are,
// are served one after the other or refused. Others are served beside them.
func TestLargeRequests(t *testing.T) {
	w := guard(t)
	for _, b := range []bomb{
		{"metrics", "/api/v1/datapoints/query", repeat(`{"start_absolute":0,"metrics":[`, `{"name":"none"},`, "]}", 60_000), false},
		{"zones", "/api/v1/datapoints/query", repeat(`{"start_absolute":0,"metrics":[`, `{"name":"none","aggregators":[{"name":"sum","time_zone":"Asia/Tokyo"}]},`, "]}", 14_000), false},
		{"tasks", "/api/v1/rollups", numbered(`{"name":"r","execution_interval":{"value":1,"unit":"hours"},"rollups":[`, `{"save_as":"s%d"}`, `]}`, 10_000), false},
	} {
		w.part(b.name, 600*mib, func(ctx context.Context) {
			crowd(200, func(int) {
				status, answer, err := w.post(ctx, b.path, b.body, b.gz, *attackFor)
				w.blames(status, answer, err)
			})
		})
	}
}

// Requests without a body have costly forms, too.
func TestCostlyPaths(t *testing.T) {
	w := guard(t)
	w.wide()
	long := strings.Repeat("a", 100_000)
	for _, path := range []string{
		"/api/v1/metricnames?prefix=" + long, "/api/v1/metricnames?pattern=" + url.QueryEscape("(?:a?){1000}"),
		"/api/v1/metricnames?pattern=" + url.QueryEscape(strings.Repeat("(?:a?){1000}", 20)), "/api/v1/metricnames?limit=-1", "/api/v1/metricnames?limit=99999999999999999999",
		"/api/v1/tagnames?metric=" + long, "/api/v1/tagvalues?tag=host&pattern=" + url.QueryEscape("((a{100}){100}){100}"),
		"/api/v1/metricnames?cursor=" + long, "/api/v1/metricnames?start_absolute=-9223372036854775808&end_absolute=9223372036854775807",
		"/api/v1/export?metric=wide&start=-9223372036854775808&end=9223372036854775807", "/api/v1/metadata/" + long + "/k", "/admin/cardinality?top=999999999", "/admin/stats?top=999999999",
		"/api/v1/admin/killquery/" + long, "/api/v1/features/" + long, "/" + long, "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd", "/admin/rejected?n=99999999999",
	} {
		name, _, _ := strings.Cut(path, long)
		w.part(name, 400*mib, func(ctx context.Context) {
			crowd(8, func(int) {
				ctx, cancel := context.WithTimeout(ctx, *attackFor)
				defer cancel()
				status, answer, err := w.Do(ctx, "GET", path, "")
				w.blames(status, answer, err)
			})
		})
	}
}

// Clients that fill what has no points: metadata, its names and what deleting it
// leaves, backups, and work that an operator asks for.
func TestStoresOnTheSide(t *testing.T) {
	w := guard(t)
	name := strings.Repeat("k", 1000)
	text := strings.Repeat("v", 64<<10)
	for _, c := range []struct {
		name, method, path, body string
	}{
		{"metadata keys", "POST", "/api/v1/metadata/s/k/" + name + "%d", text},
		{"metadata service keys", "POST", "/api/v1/metadata/s/" + name + "%d/k", "v"},
		{"long names", "POST", "/api/v1/metadata/" + strings.Repeat(name, 60) + "%d/k/k", text},
		{"deletes of what is not there", "DELETE", "/api/v1/metadata/s/" + name + "%d/none", ""},
		{"lists", "GET", "/api/v1/metadata/s?n=%d", ""},
		{"backups", "POST", "/admin/backup", `{"dir":"b%d"}`},
		{"compactions", "POST", "/admin/compact?_=%d", ""},
		{"statistics", "GET", "/admin/stats?_=%d", ""},
	} {
		w.part(c.name, 200*mib, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, *attackFor)
			defer cancel()
			var n atomic.Int64
			crowd(8, func(int) {
				for ctx.Err() == nil {
					i := int(n.Add(1))
					path, body := strings.ReplaceAll(c.path, "%d", strconv.Itoa(i)), strings.ReplaceAll(c.body, "%d", strconv.Itoa(i))
					status, answer, err := w.Do(ctx, c.method, path, body)
					if status != http.StatusConflict { // one at a time
						w.blames(status, answer, err)
					}
				}
			})
		})
	}
}

// Telnet has bombs of its own.
func TestTelnetBombs(t *testing.T) {
	w := guard(t)
	for name, line := range map[string]string{
		"faults":       "put a.metric.with.a.fault now 1 host=a\n",
		"long names":   "put " + strings.Repeat("n", 60_000) + " 1700000000 1 host=a\n",
		"long values":  "put m 1700000000 " + strings.Repeat("9", 60_000) + " host=a\n",
		"tags":         "put m 1700000000 1" + strings.Repeat(" t=v", 10_000) + "\n",
		"no end":       strings.Repeat("x", 60_000),
		"strange text": "put \x1b[2J\x00\u202e 1700000000 1 host=a\n",
	} {
		w.part(name, 200*mib, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, *attackFor)
			defer cancel()
			text := strings.Repeat(line, max(1, 60_000/len(line)))
			crowd(4, func(int) {
				c, err := connect(ctx, w.Telnet)
				if err != nil {
					return
				}
				defer c.Close()
				for ctx.Err() == nil && c.say(text) == nil {
					pause(ctx, askEvery)
				}
			})
		})
	}
}
