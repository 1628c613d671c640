package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"varve/e2e/process"
	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
)

// TestTimelinesOfAStartWithAClockAhead: while the clock of a server's machine is a year ahead after a
// start, no delete and no event with a write timestamp of next year gets into Cassandra. It would
// hide what is appended, replaced or deleted once the clock is set.
func TestTimelinesOfAStartWithAClockAhead(t *testing.T) {
	process.SkipShort(t)
	address := originals.Cassandra(t)
	config := cqltest.Config(address)
	cqltest.Drop(t, cqltest.Open(t, config, cql.Options{}))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	clock := process.NewClock(t)
	clock.Set(t, 365*24*time.Hour)
	s := clock.Start(t, t.TempDir(), "--store=cassandra", "--cassandra-hosts="+address, "--cassandra-keyspace="+config.Keyspace,
		"--cassandra-schema-create=keyspace")
	now := time.Now().UnixMilli()
	const path = "/api/v1/timelines/deploys/events"
	event := func(id, data string) string { return fmt.Sprintf(`{"time":%d,"id":%q,"data":%q}`, now, id, data) }
	err := process.Until(ctx, "the tables of timelines are there", func() (bool, error) {
		status, _, err := s.Do(ctx, http.MethodGet, path, "")
		return status == http.StatusOK, err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ method, path, body string }{
		{http.MethodPost, path, event("replaced", "early")},
		{http.MethodDelete, fmt.Sprintf("%s?until=%d", path, now+1000), ""},
		{http.MethodPost, "/api/v1/timelines/deploys/retention", `{"retention": 0}`},
	} {
		status, answer, err := s.Do(ctx, x.method, x.path, x.body)
		if err != nil || status != http.StatusServiceUnavailable {
			t.Errorf("%s %s with a clock that is ahead: %d %s %v", x.method, x.path, status, answer, err)
		}
	}
	clock.Set(t, 0)
	err = process.Until(ctx, "events are accepted", func() (bool, error) {
		status, _, err := s.Do(ctx, http.MethodPost, path, "["+event("replaced", "late")+","+event("new", "late")+"]")
		return status == http.StatusOK, err
	})
	if err != nil {
		t.Fatal(err)
	}
	_, answer, err := s.Do(ctx, http.MethodGet, path, "")
	if err != nil || strings.Count(string(answer), `"late"`) != 2 || strings.Contains(string(answer), `"early"`) {
		t.Errorf("after the clock was set: %s %v", answer, err)
	}
	if status, answer, err := s.Do(ctx, http.MethodDelete, fmt.Sprintf("%s?until=%d", path, now+1000), ""); err != nil || status != http.StatusNoContent {
		t.Errorf("delete: %d %s %v", status, answer, err)
	}
	_, answer, err = s.Do(ctx, http.MethodGet, path, "")
	if err != nil || strings.Contains(string(answer), `"late"`) || strings.Contains(string(answer), `"early"`) {
		t.Errorf("after the delete: %s %v", answer, err)
	}
}
