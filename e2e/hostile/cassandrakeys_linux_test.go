package hostile

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Series with the longest names, of which many queries, lists and deletes read the row keys at the same
// time, end neither the node nor the server.
func TestLongRowKeysInCassandra(t *testing.T) {
	const series, each = 600, 50
	over(t)
	w := guard(t)
	var tags strings.Builder
	for i := range 14 {
		fmt.Fprintf(&tags, `"t%d":"%s",`, i, strings.Repeat("v", 4090))
	}
	for first := 0; first < series; first += each {
		var some []string
		for i := first; i < first+each; i++ {
			some = append(some, fmt.Sprintf(`{"name":"keys","tags":{%s"host":"h%d"},"timestamp":1700000000000,"value":1}`, tags.String(), i))
		}
		w.store("[" + strings.Join(some, ",") + "]")
	}
	began := time.Now()
	w.settled()
	t.Log("settled after", time.Since(began))
	w.base = w.memory("VmRSS")
	const query = "/api/v1/datapoints/query"
	filters := strings.TrimSuffix(tags.String(), ",")
	for name, d := range map[string]demand{
		"filter": {"POST", query, `{"start_absolute":0,"metrics":[{"name":"keys","tags":{` + filters + `}}]}`},
		"values": {"GET", "/api/v1/tagvalues?metric=keys&tag=host", ""},
		"count":  {"POST", query, `{"start_absolute":0,"metrics":[{"name":"keys","aggregators":[{"name":"count","sampling":{"value":1,"unit":"years"}}]}]}`},
		"delete": {"POST", "/api/v1/datapoints/delete", `{"start_absolute":0,"metrics":[{"name":"keys","tags":{"host":"regex:none"}}]}`},
	} {
		w.part(name, 900*mib, func(ctx context.Context) { w.demands(ctx, 12, time.Minute, d) })
	}
}
