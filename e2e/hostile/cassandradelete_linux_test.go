package hostile

import (
	"context"
	"fmt"
	"math"
	"net/http"
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

// eachOfMany is a delete of up to n metrics, near the limit of a request.
func eachOfMany(n int, metric string) string {
	const most = 1_000_000
	var b strings.Builder
	b.WriteString(`{"start_absolute":0,"metrics":[{"name":"none"}`)
	for i := 0; i < n && b.Len() < most; i++ {
		fmt.Fprintf(&b, `,`+metric, i)
	}
	b.WriteString("]}")
	return b.String()
}

// Deletes whose requests are as large as they may be end neither the node nor the server, which records them
// for other servers, and looks for those of others.
func TestLargeDeletesInCassandra(t *testing.T) {
	over(t)
	w := guard(t)
	w.storeAll(5_000, func(i int) string {
		return fmt.Sprintf(`{"name":"many","tags":{"host":"h%d"},"timestamp":1700000000000,"value":1}`, i)
	})
	for name, body := range map[string]string{
		"values":   selection("none", "h%d"),
		"metrics":  eachOfMany(math.MaxInt, `{"name":"none%d"}`),
		"patterns": eachOfMany(3000, `{"name":"many","tags":{"host":"regex:%d.*a"}}`),
	} {
		for _, patience := range []time.Duration{300 * time.Millisecond, time.Minute} {
			w.part(fmt.Sprint(name, ", clients that leave after ", patience), 400*mib, func(ctx context.Context) {
				began := time.Now()
				w.demands(ctx, 20, patience, demand{"POST", "/api/v1/datapoints/delete", body})
				w.t.Log("the attack took", time.Since(began))
			})
		}
	}
}

// Large deletes are recorded for other servers, and each server reads those of the time in which its samples
// waited: that ends neither the node nor the server.
func TestRecordedDeletesInCassandra(t *testing.T) {
	const deletes, clients = 480, 8
	over(t)
	w := guard(t, "--cassandra-spool-linger=10m") // the bystander's points wait all the time
	body := selection("none", "h%d")
	w.part("recorded", 400*mib, func(ctx context.Context) {
		crowd(clients, func(int) {
			for done := 0; done < deletes/clients; {
				status, answer, err := w.Do(ctx, "POST", "/api/v1/datapoints/delete", body)
				if w.blames(status, answer, err); status == http.StatusNoContent {
					done++
				}
			}
		})
	})
	w.part("read", 400*mib, func(ctx context.Context) { w.settled() })
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
