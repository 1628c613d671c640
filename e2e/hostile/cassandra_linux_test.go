package hostile

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"varve/e2e/process"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
)

// over skips a test that is about a store over Cassandra where the attacks are on another one.
func over(t *testing.T) {
	t.Helper()
	skip(t)
	if !*overCassandra {
		t.Skip("an attack on a server over Cassandra: -hostile.cassandra")
	}
}

// store sends points as JSON, which need to be accepted.
func (w *ward) store(points string) {
	w.t.Helper()
	if _, err := w.Want(w.t.Context(), http.StatusNoContent, "POST", "/api/v1/datapoints", points); err != nil {
		w.t.Fatal(err)
	}
}

// settled waits until Cassandra has all that was sent.
func (w *ward) settled() {
	w.t.Helper()
	for limit := time.Now().Add(5 * time.Minute); ; pause(w.t.Context(), lookEvery) {
		err := w.settle(w.t.Context())
		if err == nil {
			return
		}
		if time.Now().After(limit) {
			w.t.Fatalf("the points are not in Cassandra: %v", err)
		}
	}
}

// Texts of the greatest length, of many series that a query reads at the same time, end neither the
// node nor the server.
func TestLongTextsInCassandra(t *testing.T) {
	const series, texts = 40, 64
	over(t)
	w := guard(t)
	text := strings.Repeat("x", 65_000)
	for s := range series {
		var b strings.Builder
		fmt.Fprintf(&b, `[{"name":"text","type":"string","tags":{"host":"h%d"},"datapoints":[`, s)
		for i := range texts {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `[%d,"%d%s"]`, bystanderStart+i, i, text)
		}
		b.WriteString("]}]")
		w.store(b.String())
	}
	w.settled()
	w.base = w.memory("VmRSS")
	for name, aggregators := range map[string]string{"all": "", "counted": `,"aggregators":[{"name":"count","sampling":{"value":1,"unit":"years"}}]`} {
		w.part(name, 1200*mib, func(ctx context.Context) {
			w.demands(ctx, 12, time.Minute, demand{"POST", "/api/v1/datapoints/query", `{"start_absolute":0,"metrics":[{"name":"text"` + aggregators + `}]}`})
		})
	}
}

// Events of the greatest size that is stored in a row, read by many at the same time, end neither the node
// nor the server.
func TestLongEventsInCassandra(t *testing.T) {
	const events, each = 2000, 100
	over(t)
	w := guard(t)
	data := strings.Repeat("x", 32_000)
	for first := 0; first < events; first += each {
		var b strings.Builder
		for i := first; i < first+each; i++ {
			fmt.Fprintf(&b, "{\"time\":%d,\"data\":\"%s\"}\n", i, data)
		}
		status, answer, err := w.lines(t.Context(), "long", b.String(), false)
		if err != nil || status != http.StatusOK {
			t.Fatalf("%d %.300s, %v", status, answer, err)
		}
	}
	w.base = w.memory("VmRSS")
	for name, path := range map[string]string{
		"filter": "/api/v1/timelines/long/events?type=none&limit=10000",
		"pages":  "/api/v1/timelines/long/events?order=asc&limit=1000",
	} {
		w.part(name, 600*mib, func(ctx context.Context) { w.demands(ctx, 40, time.Minute, demand{"GET", path, ""}) })
	}
}

// outages are the ways in which a node goes away.
var outages = map[string]func(*cqltest.FailingNode){
	"down": (*cqltest.FailingNode).Cut,
	"hangs": func(n *cqltest.FailingNode) {
		n.Fail(func(cqltest.Request) *cqltest.Trouble { return cqltest.Silent })
	},
}

// without runs an attack on a server whose node stops before the attack, and starts again after it. The
// bystander is served or refused at once, and the points that were acknowledged reach Cassandra.
func (w *ward) without(name string, node *cqltest.FailingNode, leave func(*cqltest.FailingNode), mayTake int64, attack func(ctx context.Context)) {
	w.within(name, func() {
		leave(node)
		if err := process.Until(w.t.Context(), "the outage is noticed", func() (bool, error) {
			_, err := w.MetricNames(w.t.Context(), "")
			return err != nil, nil
		}); err != nil {
			w.t.Fatal(err)
		}
		w.mayRefuse.Store(true)
		w.beside(attack)
		w.mayRefuse.Store(false)
		node.Mend()
		w.opens()
		w.settled()
		w.rests()
		w.judge(mayTake)
	})
}

// guardFailing is guard with a node that can go away.
func guardFailing(t *testing.T, flags ...string) (*ward, *cqltest.FailingNode) {
	t.Helper()
	over(t)
	node := cqltest.NewFailingNode(t, originals.Cassandra(t))
	dir, flags := t.TempDir(), inKeyspace(t, node.Address, flags)
	return watch(t, process.Start(t, dir, flags...), dir, flags), node
}

// A demand is a request that is made again and again. N in its path and body stands for a number that is
// another one each time.
type demand struct{ method, path, body string }

// demands makes requests by several clients for a while. Each client leaves when its patience ends.
func (w *ward) demands(ctx context.Context, clients int, patience time.Duration, all ...demand) {
	ctx, cancel := context.WithTimeout(ctx, *attackFor)
	defer cancel()
	var n atomic.Int64
	crowd(clients, func(i int) {
		for ctx.Err() == nil {
			number := n.Add(1)
			d := all[int(number)%len(all)]
			ctx, cancel := context.WithTimeout(ctx, patience)
			numbered := strings.NewReplacer("N", fmt.Sprint(number))
			status, answer, err := w.Do(ctx, d.method, numbered.Replace(d.path), numbered.Replace(d.body))
			cancel()
			w.blames(status, answer, err)
		}
	})
}

// Requests of each kind hold up nobody while the node is away, and what was acknowledged meanwhile is
// stored.
func TestOutages(t *testing.T) {
	const query, change = "/api/v1/datapoints/query", "/api/v1/rollups"
	w, node := guardFailing(t)
	w.wide()
	w.settled()
	points := `[{"name":"outage.N","tags":{"host":"hN"},"datapoints":[` + strings.TrimSuffix(strings.Repeat("[1700000000000,1],", 1000), ",") + `]}]`
	task := `{"name":"tN","execution_interval":{"value":1,"unit":"seconds"},"rollups":[{"save_as":"sN","query":{"start_relative":{"value":1,"unit":"hours"},"metrics":[{"name":"wide","aggregators":[{"name":"sum","sampling":{"value":1,"unit":"minutes"}}]}]}}]}`
	for _, c := range []struct {
		name string
		all  []demand
	}{
		{"points", []demand{{"POST", "/api/v1/datapoints", points}}},
		{"questions", []demand{{"POST", query, wideQuestion}, {"POST", query + "/tags", wideQuestion}, {"POST", query, `{"start_absolute":0,"metrics":[` + strings.Repeat(`{"name":"none"},`, 1000) + `{"name":"wide"}]}`}}},
		{"names", []demand{{"GET", "/api/v1/metricnames", ""}, {"GET", "/api/v1/tagnames", ""}, {"GET", "/api/v1/tagvalues", ""}, {"GET", "/metrics/find?query=*", ""}, {"GET", "/metrics/index.json", ""}}},
		{"renders", []demand{{"GET", "/render?target=*.*&format=json", ""}, {"GET", "/tags/findSeries?expr=name=~.*", ""}}},
		{"deletes", []demand{{"POST", "/api/v1/datapoints/delete", `{"start_absolute":0,"metrics":[{"name":"other"}]}`}, {"DELETE", "/api/v1/metric/otherN", ""}, {"DELETE", "/api/v1/metric/outage.N", ""}}},
		{"metadata", []demand{{"POST", "/api/v1/metadata/s/k/N", "v"}, {"DELETE", "/api/v1/metadata/s/k/N", ""}, {"GET", "/api/v1/metadata/s", ""}, {"GET", "/api/v1/metadata/s/k/N", ""}}},
		{"roll-ups", []demand{{"POST", change, task}, {"GET", change, ""}, {"DELETE", change + "/xN", ""}}},
		{"timelines", []demand{{"POST", "/api/v1/timelines/outageN/events", `{"time":1,"data":1}`}, {"GET", "/api/v1/timelines/outage/events", ""}, {"GET", "/api/v1/timelines", ""}, {"DELETE", "/api/v1/timelines/outageN", ""}, {"GET", "/api/v1/timelines/outage/tail", ""}}},
		{"events", []demand{{"POST", "/events", `{"what":"N","tags":"a","when":1700000000}`}, {"GET", "/events/get_data?from=0", ""}}},
		{"exports", []demand{{"GET", "/api/v1/export?metric=wide", ""}, {"POST", "/admin/flush", ""}, {"GET", "/admin/cassandra", ""}, {"GET", "/admin/cardinality", ""}, {"GET", "/admin/deletes", ""}}},
	} {
		for how, leave := range outages {
			w.without(c.name+", "+how, node, leave, 400*mib, func(ctx context.Context) { w.demands(ctx, 40, 20*time.Second, c.all...) })
		}
	}
}

// Points that fill the spool while the node is away are refused, and others' are taken or refused at
// once. Those that were taken are stored.
func TestSpoolThatFills(t *testing.T) {
	w, node := guardFailing(t, "--cassandra-spool-max-bytes=4MiB")
	w.without("series", node, outages["down"], 200*mib, func(ctx context.Context) {
		w.demands(ctx, 20, time.Minute, demand{"POST", "/api/v1/datapoints", `[{"name":"fillN","tags":{"host":"` + strings.Repeat("h", 4000) + `N"},"timestamp":1700000000000,"value":1}]`})
	})
	w.without("points", node, outages["hangs"], 200*mib, func(ctx context.Context) {
		var b strings.Builder
		for i := range 20_000 {
			fmt.Fprintf(&b, "put fill %d %d.%d host=a\n", 1_700_000_000+i, i, i*7919%1000)
		}
		ctx, cancel := context.WithTimeout(ctx, *attackFor)
		defer cancel()
		crowd(8, func(i int) {
			c, err := connect(ctx, w.Telnet)
			if err != nil {
				return
			}
			defer c.Close()
			for ctx.Err() == nil && c.say(b.String()) == nil {
			}
		})
	})
}

// storeAll sends n metrics with their points, and waits until Cassandra has them.
func (w *ward) storeAll(n int, metric func(i int) string) {
	w.t.Helper()
	const perRequest = 5000
	for first := 0; first < n; first += perRequest {
		var some []string
		for i := first; i < min(first+perRequest, n); i++ {
			some = append(some, metric(i))
		}
		w.store("[" + strings.Join(some, ",") + "]")
	}
	w.settled()
	w.base = w.memory("VmRSS")
}

// A metric of many series, or of long names, a series of many rows, and many metrics: questions of
// each kind about them, of clients that leave, delay no other requests.
func TestWidePartitions(t *testing.T) {
	const query = "/api/v1/datapoints/query"
	ask := func(more string) demand {
		return demand{"POST", query, `{"start_absolute":-9223372036854775808,"metrics":[{"name":"many",` + more + `}]}`}
	}
	count := `"aggregators":[{"name":"count","sampling":{"value":1,"unit":"years"}}]`
	all := []demand{ask(count), ask(count + `,"group_by":[{"name":"tag","tags":["host"]}]`), ask(count + `,"tags":{"host":"h1"}`), ask(count + `,"tags":{"host":"regex:.*(a|b)*7"}`),
		{"POST", query + "/tags", `{"start_absolute":0,"metrics":[{"name":"many"}]}`}, {"GET", "/api/v1/tagvalues?tag=host", ""}, {"GET", "/api/v1/tagnames?metric=many", ""},
		{"GET", "/api/v1/metricnames", ""}, {"GET", "/api/v1/tagnames", ""}, {"GET", "/metrics/find?query=many*", ""}, {"GET", "/api/v1/export?metric=many", ""}, {"GET", "/admin/cardinality", ""}}
	long := strings.Repeat("v", 480)
	var tags strings.Builder
	for i := range 15 {
		fmt.Fprintf(&tags, `"t%d":"%s",`, i, long)
	}
	for name, c := range map[string]struct {
		n      int
		metric func(i int) string
	}{
		"series": {20_000, func(i int) string {
			return fmt.Sprintf(`{"name":"many","tags":{"host":"h%d","of":"%d"},"timestamp":1700000000000,"value":1}`, i, i%10)
		}},
		"long names": {400, func(i int) string {
			return fmt.Sprintf(`{"name":"many","tags":{%s"host":"h%d"},"timestamp":%d,"value":1}`, tags.String(), i, 1_700_000_000_000-1_814_400_000*(i%8))
		}},
		"rows": {3000, func(i int) string {
			return fmt.Sprintf(`{"name":"many","tags":{"host":"h%d"},"timestamp":%d,"value":1}`, i%4, 1_814_400_000*(i/2))
		}},
		"rows before 1970": {2000, func(i int) string {
			return fmt.Sprintf(`{"name":"many","tags":{"host":"h%d"},"timestamp":%d,"value":1}`, i%4, -i-1)
		}},
		"metrics": {5000, func(i int) string {
			return fmt.Sprintf(`{"name":"many%d","tags":{"host":"h%d"},"timestamp":1700000000000,"value":1}`, i, i%4)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			over(t)
			w := guard(t)
			w.storeAll(c.n, c.metric)
			for _, patience := range []time.Duration{100 * time.Millisecond, time.Minute} {
				w.part(fmt.Sprint("clients that leave after ", patience), 900*mib, func(ctx context.Context) { w.demands(ctx, 2*len(all), patience, all...) })
			}
			w.part("delete", 900*mib, func(ctx context.Context) {
				w.demands(ctx, 4, 300*time.Millisecond, demand{"POST", "/api/v1/datapoints/delete", `{"start_absolute":-9223372036854775808,"metrics":[{"name":"many"}]}`}, demand{"DELETE", "/api/v1/metric/manyN", ""})
			})
		})
	}
}

// TestQueriesThatWaitForCassandra: queries of one address that wait for Cassandra, more than there are
// slots, do not keep the slots from others.
func TestQueriesThatWaitForCassandra(t *testing.T) {
	over(t)
	w := guard(t)
	w.storeAll(12_000, func(i int) string {
		return fmt.Sprintf(`{"name":"many","tags":{"host":"h"},"timestamp":%d,"value":1}`, 1_814_400_000*i)
	})
	const body = `{"start_absolute":-9223372036854775808,"metrics":[{"name":"many","aggregators":[{"name":"count","sampling":{"value":1,"unit":"years"}}]}]}`
	w.under(900*mib, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, max(*attackFor, 12*time.Second))
		defer cancel()
		crowd(20, func(int) {
			for ctx.Err() == nil {
				c, err := connectFrom(ctx, crowdAddress, w.HTTP)
				if err != nil {
					return
				}
				c.say(fmt.Sprintf("POST /api/v1/datapoints/query HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", w.HTTP, len(body), body))
				_, _ = c.Read(make([]byte, 4096))
				c.Close()
			}
		})
	})
}
