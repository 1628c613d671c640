package hostile

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// selection is a delete of many filters of one metric, near the limit of a request.
func selection(metric, value string) string {
	const most = 1_000_000
	var b strings.Builder
	fmt.Fprintf(&b, `{"start_absolute":0,"metrics":[{"name":"%s","tags":{"host":["x"`, metric)
	for i := 0; b.Len() < most; i++ {
		fmt.Fprintf(&b, `,"`+value+`"`, i)
	}
	b.WriteString("]}}]}")
	return b.String()
}

// Filters of as many values as a request may have cost no more than a comparison with each series: they are
// not compared with each value.
func TestManyValuesInCassandra(t *testing.T) {
	over(t)
	w := guard(t)
	w.storeAll(20_000, func(i int) string {
		return fmt.Sprintf(`{"name":"many","tags":{"host":"h%d"},"timestamp":1700000000000,"value":1}`, i)
	})
	body := selection("many", "%d")
	for name, path := range map[string]string{"query": "/api/v1/datapoints/query", "preview": "/api/v1/datapoints/delete/preview", "delete": "/api/v1/datapoints/delete"} {
		for _, patience := range []time.Duration{300 * time.Millisecond, time.Minute} {
			w.part(fmt.Sprint(name, ", clients that leave after ", patience), 400*mib, func(ctx context.Context) {
				w.demands(ctx, 20, patience, demand{"POST", path, body})
			})
		}
	}
}
