package hostile

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// times are the ends of what a time can be, the borders of rows and partitions
// (three weeks), and the times next to them.
var times = []string{
	"-9223372036854775808", "-9223372036854775807", "9223372036854775807", "9223372036854775806",
	"-9223372036854775808000", "9223372036854775807000", "1e18", "1.5e3", "-1", "0", "-0", "1", "999999999999", "1000000000000",
	"1814399999", "1814400000", "1814400001", "-1814400000", "-1814400001", "-1814399999", "4294967296", "-62135596800000", "253402300800000",
	"9223372036854775", "9223372036854776", "-9223372036854776", "9007199254740991", "9007199254740993", "1700000000000",
}

// values are numbers that careless conversions change or refuse.
var values = []string{
	"0", "-0", "-0.0", "1e-05", "5e-324", "-5e-324", "2.2250738585072014e-308", "1.7976931348623157e308", "-1.7976931348623157e308", "1e400", "-1e400", "1e-400",
	"9007199254740991", "9007199254740992", "9007199254740993", "-9007199254740993", "9223372036854775807", "-9223372036854775808", "9223372036854775808",
	"-9223372036854775809", "18446744073709551616", "0.1", "1.0", "1E5", "1e0", "123456789012345678901234567890.5",
	"NaN", "Infinity", "-Infinity", "+1", "0x10", "1_000", ".5", "5.", "1e", "--1", "",
}

// Every time is sent with every value by every protocol. Every question about the
// points that were stored is answered, and the process lives.
func TestExtremeValues(t *testing.T) {
	w := guard(t)
	w.under(300*mib, func(ctx context.Context) {
		for i, at := range times {
			var lines strings.Builder
			for j, value := range values {
				w.Do(ctx, "POST", "/api/v1/datapoints", fmt.Sprintf(`[{"name":"extreme.json","tags":{"host":"h%d"},"timestamp":%s,"value":%s}]`, j, at, value))
				w.Do(ctx, "POST", "/api/put?details", fmt.Sprintf(`[{"metric":"extreme.put","tags":{"host":"h%d"},"timestamp":%s,"value":%s}]`, j, at, value))
				fmt.Fprintf(&lines, "put extreme.telnet.ms %s %s host=h%d\nputm extreme.telnet.m %s %s host=h%d\n", at, value, (i+j)%40, at, value, j)
			}
			c, err := connect(ctx, w.Telnet)
			if err != nil {
				t.Fatal(err)
			}
			c.say(lines.String())
			c.Close()
		}
		w.ask(ctx)
		if err := w.settle(ctx); err != nil {
			t.Error(err)
		}
		w.ask(ctx)
	})
	before := w.everything()
	w.Kill()
	w.again()
	if after := w.everything(); after != before {
		t.Errorf("after a kill and a start the answer is another one:\n%.500s\n%.500s", before, after)
	}
}

// everything is the answer to a question for all that was sent.
func (w *ward) everything() string {
	w.t.Helper()
	answer, err := w.Want(w.t.Context(), http.StatusOK, "POST", "/api/v1/datapoints/query",
		`{"start_absolute":-9223372036854775808,"metrics":[{"name":"extreme.json"},{"name":"extreme.put"},{"name":"extreme.telnet.ms"},{"name":"extreme.telnet.m"}]}`)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(answer)
}

// ask asks for everything by every aggregator over every range.
func (w *ward) ask(ctx context.Context) {
	w.t.Helper()
	samplings := []string{`{"value":1,"unit":"hours"}`, `{"value":1,"unit":"years"}`, `{"value":2147483647,"unit":"years"}`, `{"value":1,"unit":"months"}`, `{"value":3,"unit":"weeks"}`,
		`{"value":9223372036854775807,"unit":"milliseconds"}`, `{"value":9223372036854775807,"unit":"weeks"}`}
	ranges := []string{`"start_absolute":-9223372036854775808,"end_absolute":9223372036854775807`, `"start_absolute":0`, `"start_absolute":1700000000000`,
		`"start_absolute":9223372036854775807,"end_absolute":9223372036854775807`, `"start_absolute":-9223372036854775808,"end_absolute":-9223372036854775808`,
		`"start_relative":{"value":9223372036854775807,"unit":"years"}`, `"start_relative":{"value":1,"unit":"hours"},"end_relative":{"value":2147483647,"unit":"months"}`}
	aligned := []string{``, `,"align_start_time":true`, `,"align_end_time":true`, `,"align_sampling":false`}
	n, failed := 0, 0
	for _, metric := range []string{"extreme.json", "extreme.put", "extreme.telnet.ms", "extreme.telnet.m"} {
		for _, span := range ranges {
			for i, name := range []string{"", "sum", "avg", "min", "max", "count", "first", "last", "dev", "percentile", "least_squares", "diff", "rate", "sampler", "sma", "filter", "scale", "div", "trim"} {
				for j, sampling := range samplings {
					if i == 0 && j > 0 {
						break
					}
					aggregator := ""
					if name != "" {
						aggregator = fmt.Sprintf(`{"name":%q,"sampling":%s,"unit":"milliseconds","percentile":0.5,"size":3,"filter_op":"ne","threshold":1,"factor":1e308,"divisor":5e-324,"trim":"both"%s}`, name, sampling, aligned[(i+j)%len(aligned)])
					}
					body := fmt.Sprintf(`{%s,"metrics":[{"name":%q,"aggregators":[%s],"order":%q}]}`, span, metric, aggregator, []string{"asc", "desc"}[(i+j)%2])
					status, answer, err := w.Do(ctx, "POST", "/api/v1/datapoints/query", body)
					n++
					if err != nil || status != http.StatusOK && status != http.StatusBadRequest {
						if failed++; failed <= 5 {
							w.t.Errorf("%s: status %d, %v: %.300s", body, status, err, answer)
						}
						if err != nil {
							return
						}
					}
				}
			}
		}
	}
	w.t.Logf("%d questions, %d of them failed", n, failed)
}
