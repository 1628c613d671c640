package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"varve/e2e/process"
	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
)

// TestCollectdThroughCassandra lets a real collectd send to Varve, which writes
// into Cassandra. When collectd has ended, an original KairosDB opens the
// keyspace that Varve made, lists the same metrics, and has the same points.
func TestCollectdThroughCassandra(t *testing.T) {
	process.SkipShort(t)
	address := originals.Cassandra(t)
	daemon := collectdPath(t)
	config := cqltest.Config(address)
	cqltest.Drop(t, cqltest.Open(t, config, cql.Options{}))
	s := process.Start(t, t.TempDir(), "--store=cassandra", "--cassandra-hosts="+address, "--cassandra-keyspace="+config.Keyspace,
		"--cassandra-schema-create=keyspace", "--cassandra-spool-linger=1s")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	err := process.Until(ctx, "the keyspace is open", func() (bool, error) {
		_, err := s.MetricNames(ctx, "")
		return err == nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	c := startCollectd(t, daemon, t.TempDir(), s.Documented(t, "..", "collectd-tsdb"))
	waitForPoints(ctx, t, s, c, "load.load.shortterm", 4)
	c.stop()
	checkRejected(ctx, t, s, "")
	names, err := s.MetricNames(ctx, "")
	if err != nil {
		t.Fatal(err)
	}

	k := originals.StartKairosDB(t, originals.KairosDBOptions{Cassandra: []string{address}, Keyspace: config.Keyspace})
	var theirs struct{ Results []string }
	askOriginal(ctx, t, http.MethodGet, k.URL+"/api/v1/metricnames", "", &theirs)
	slices.Sort(theirs.Results)
	if !slices.Equal(theirs.Results, names) {
		t.Errorf("KairosDB lists %q, Varve %q", theirs.Results, names)
	}
	// What Varve holds is drained within its linger.
	end := time.Now().UnixMilli()
	total := 0
	err = process.Until(ctx, "KairosDB has what Varve has", func() (bool, error) {
		total = 0
		for _, name := range names {
			body := fmt.Sprintf(`{"start_absolute":0,"end_absolute":%d,"metrics":[{"name":%q,"group_by":[{"name":"tag","tags":["fqdn"]}]}]}`, end, name)
			ours, err := s.Query(ctx, body)
			if err != nil {
				return false, err
			}
			var parsed struct {
				Queries []struct{ Results []process.Result }
			}
			askOriginal(ctx, t, http.MethodPost, k.URL+"/api/v1/datapoints/query", body, &parsed)
			if got, want := pointsText(parsed.Queries[0].Results), pointsText(ours); got != want {
				t.Logf("%s: KairosDB has %.200s, Varve %.200s", name, got, want)
				return false, nil
			}
			for _, r := range ours {
				total += len(r.Values)
			}
		}
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("collectd wrote %d samples in %d metrics, which KairosDB reads from Cassandra as Varve does", total, len(names))
	s.Stop(t)
}

// pointsText formats results, so that equal results have the same text.
func pointsText(results []process.Result) string {
	var b strings.Builder
	for _, r := range results {
		fmt.Fprintf(&b, "%s %v", r.Group(), r.Tags)
		for _, v := range r.Values {
			var value float64
			if err := json.Unmarshal(v[1], &value); err != nil {
				return fmt.Sprintf("%s: %v", v[1], err)
			}
			fmt.Fprintf(&b, " %s=%v", v[0], value)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func askOriginal(ctx context.Context, t *testing.T, method, url, body string, into any) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(response.Body); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %.300s %v", url, response.Status, text.String(), err)
	}
	if err := json.Unmarshal(text.Bytes(), into); err != nil {
		t.Fatalf("%s: %v", url, err)
	}
}
