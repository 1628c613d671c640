package beside

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"varve/e2e/process"
	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
)

// A node is Varve or KairosDB, over HTTP.
type node struct {
	name   string
	url    string
	client *http.Client
}

// A series identifies a point together with its time.
type series struct{ metric, host string }

// points are values by time in milliseconds.
type points map[int64]int64

// A content has all points of an answer or of a ledger.
type content map[series]points

func (c content) add(s series, ms, value int64) {
	if c[s] == nil {
		c[s] = points{}
	}
	c[s][ms] = value
}

func (c content) len() (n int) {
	for _, p := range c {
		n += len(p)
	}
	return n
}

// differs describes how c differs from want.
func (c content) differs(want content) string {
	for s, times := range want {
		for ms, value := range times {
			if got, ok := c[s][ms]; !ok || got != value {
				return fmt.Sprintf("%v at %d is %d (%v), want %d; %d points of %d in all", s, ms, got, ok, value, c.len(), want.len())
			}
		}
	}
	if c.len() != want.len() {
		return fmt.Sprintf("%d points, want %d", c.len(), want.len())
	}
	return ""
}

func (n *node) do(ctx context.Context, method, path, body string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, n.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := n.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s %s: %s: %.300s", n.name, method, path, response.Status, answer)
	}
	return answer, err
}

// write sends points.
func (n *node) write(ctx context.Context, c content) error {
	type metric struct {
		Name       string            `json:"name"`
		Tags       map[string]string `json:"tags"`
		Datapoints [][2]int64        `json:"datapoints"`
	}
	var body []metric
	for s, times := range c {
		m := metric{Name: s.metric, Tags: map[string]string{"host": s.host}}
		for ms, value := range times {
			m.Datapoints = append(m.Datapoints, [2]int64{ms, value})
		}
		body = append(body, m)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	_, err = n.do(ctx, http.MethodPost, "/api/v1/datapoints", string(text))
	return err
}

// read asks for all points of metrics. tags is JSON for each of them.
func (n *node) read(ctx context.Context, tags string, metrics ...string) (content, error) {
	list := make([]string, len(metrics))
	for i, m := range metrics {
		list[i] = fmt.Sprintf(`{"name":%q,"tags":%s,"group_by":[{"name":"tag","tags":["host"]}]}`, m, tags)
	}
	answer, err := n.do(ctx, http.MethodPost, "/api/v1/datapoints/query", `{"start_absolute":0,"metrics":[`+strings.Join(list, ",")+`]}`)
	if err != nil {
		return nil, err
	}
	var parsed struct {
		Queries []struct{ Results []process.Result }
	}
	if err := json.Unmarshal(answer, &parsed); err != nil {
		return nil, err
	}
	c := content{}
	for _, q := range parsed.Queries {
		for _, r := range q.Results {
			for _, v := range r.Values {
				ms, err := strconv.ParseInt(string(v[0]), 10, 64)
				if err != nil {
					return nil, err
				}
				value, err := strconv.ParseInt(string(v[1]), 10, 64)
				if err != nil {
					return nil, fmt.Errorf("%s: %s at %d: %w", n.name, r.Name, ms, err)
				}
				c.add(series{r.Name, r.Group()}, ms, value)
			}
		}
	}
	return c, nil
}

// seenWithin is how long one server may take to see points that were sent to
// the other: Varve's linger, KairosDB's queue, and Varve's cache of finished
// rows.
const seenWithin = 30 * time.Second

// await waits until the node has exactly the wanted points of metrics.
func (n *node) await(t *testing.T, what string, want content, metrics ...string) {
	t.Helper()
	began := time.Now()
	for {
		got, err := n.read(t.Context(), "{}", metrics...)
		if err != nil {
			t.Fatal(err)
		}
		difference := got.differs(want)
		if difference == "" {
			t.Logf("%s: %s has it after %v", what, n.name, time.Since(began).Round(time.Millisecond))
			return
		}
		if time.Since(began) > seenWithin {
			t.Errorf("%s: %s after %v: %s", what, n.name, seenWithin, difference)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// startBoth starts KairosDB and Varve on a new keyspace that KairosDB creates.
func startBoth(t *testing.T) (varve, kairos *node) {
	process.SkipShort(t)
	address := originals.Cassandra(t)
	config := cqltest.Config(address)
	cqltest.Drop(t, cqltest.Open(t, config, cql.Options{}))
	k := originals.StartKairosDB(t, originals.KairosDBOptions{
		Cassandra: []string{address}, Keyspace: config.Keyspace, CompactStorage: true, TagIndex: `["*"]`,
	})
	s := process.Start(t, t.TempDir(), "--store=cassandra", "--cassandra-hosts="+address, "--cassandra-keyspace="+config.Keyspace,
		"--cassandra-spool-linger=200ms", "--tune=cassandra.read.postings_cache_age=1s",
		"--tune=cassandra.write.index_refresh=2s", "--cassandra-write-tag-index=include all")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of Varve's log:\n%s", s.Log.Tail())
		}
	})
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	t.Cleanup(client.CloseIdleConnections)
	varve, kairos = &node{"Varve", "http://" + s.HTTP, client}, &node{"KairosDB", k.URL, client}
	// Varve accepts points at once, and answers queries when the keyspace is
	// open.
	err := process.Until(t.Context(), "Varve opens the keyspace", func() (bool, error) {
		_, err := varve.read(t.Context(), "{}", "none")
		return err == nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return varve, kairos
}
