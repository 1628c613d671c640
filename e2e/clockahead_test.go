package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"varve/e2e/process"
	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
)

// TestStartWithAClockAheadOverCassandra: the clock of a server's machine is a year ahead at a start
// and is set right a while later, as by NTP. No acknowledged point is lost: points with a
// time-to-live that waited, points of a metric whose delete was refused while the clock was ahead,
// and points that overwrite points written at the wrong time.
func TestStartWithAClockAheadOverCassandra(t *testing.T) {
	process.SkipShort(t)
	address := originals.Cassandra(t)
	config := cqltest.Config(address)
	cqltest.Drop(t, cqltest.Open(t, config, cql.Options{}))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir, clock := t.TempDir(), process.NewClock(t)
	var s *process.Server
	start := func(ahead time.Duration) {
		t.Helper()
		clock.Set(t, ahead)
		s = clock.Start(t, dir, "--store=cassandra", "--cassandra-hosts="+address, "--cassandra-keyspace="+config.Keyspace,
			"--cassandra-schema-create=keyspace", "--cassandra-spool-linger=1h")
		err := process.Until(ctx, "the keyspace is open", func() (bool, error) {
			_, err := s.MetricNames(ctx, "")
			return err == nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	const minute = 60_000
	now := time.Now().UnixMilli() / minute * minute
	put := func(metric string, ttlSec, value int, agoMin ...int) {
		t.Helper()
		var points []string
		for _, m := range agoMin {
			points = append(points, fmt.Sprintf("[%d,%d]", now-int64(m)*minute, value))
		}
		body := fmt.Sprintf(`[{"name":%q,"tags":{"h":"x"},"ttl":%d,"datapoints":[%s]}]`, metric, ttlSec, strings.Join(points, ","))
		if _, err := s.Want(ctx, http.StatusNoContent, http.MethodPost, "/api/v1/datapoints", body); err != nil {
			t.Fatal(err)
		}
	}
	flush := func() (int, string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		status, answer, err := s.Do(ctx, http.MethodPost, "/admin/flush", "")
		if err != nil {
			return 0, err.Error()
		}
		return status, string(answer)
	}
	has := func(when, metric string, want ...string) {
		t.Helper()
		results, err := s.Query(ctx, fmt.Sprintf(`{"start_absolute":%d,"end_absolute":%d,"cache_time":0,"metrics":[{"name":%q}]}`, now-100*minute, now+minute, metric))
		if err != nil {
			t.Error(err)
			return
		}
		var got []string
		for _, r := range results {
			for _, v := range r.Values {
				ms, err := strconv.ParseInt(string(v[0]), 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprintf("%d=%s", (now-ms)/minute, string(v[1])))
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %s has %v, want %v (minutes ago = value)", when, metric, got, want)
		}
	}

	const month, year = 30 * 86400, 365 * 24 * time.Hour
	start(0)
	put("short", month, 1, 1, 2, 3)
	put("long", 13*month, 1, 1, 2)
	put("plain", 0, 1, 1, 2)
	put("doomed", 0, 1, 1, 2)
	if status, answer := flush(); status != http.StatusNoContent && status != http.StatusOK {
		t.Fatal(status, answer)
	}
	put("short", month, 2, 2, 3, 4)
	put("long", 13*month, 2, 2, 3)
	s.Kill()

	start(year)
	put("plain", 0, 2, 2, 3)
	if status, answer := flush(); status == http.StatusNoContent || status == http.StatusOK {
		t.Errorf("flush with a clock that is ahead: %d %s", status, answer)
	}
	for what, request := range map[string][2]string{
		"delete": {http.MethodDelete, "/api/v1/metric/doomed"},
		"status": {http.MethodGet, "/admin/cassandra"},
	} {
		status, text, err := s.Do(ctx, request[0], request[1], "")
		refused := what == "status" || status == http.StatusServiceUnavailable
		if err != nil || !refused || !strings.Contains(string(text), "ahead of those of Cassandra's nodes") {
			t.Errorf("%s with a clock that is ahead: %d %s %v", what, status, text, err)
		}
	}

	clock.Set(t, 0)
	put("plain", 0, 3, 3, 4)
	put("doomed", 0, 3, 2, 3)
	if status, answer := flush(); status != http.StatusNoContent && status != http.StatusOK {
		t.Errorf("%d %s", status, answer)
	}
	check := func(when string) {
		t.Helper()
		has(when, "short", "1=1", "2=2", "3=2", "4=2")
		has(when, "long", "1=1", "2=2", "3=2")
		has(when, "plain", "1=1", "2=2", "3=3", "4=3")
		has(when, "doomed", "1=1", "2=3", "3=3")
	}
	check("after the clock was set")
	s.Kill()
	start(0)
	check("after another start")
}
