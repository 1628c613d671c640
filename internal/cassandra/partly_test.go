package cassandra

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/model"
	"varve/internal/store"
)

// samplesAway lets the samples of a metric find too few replicas.
func samplesAway(metric string) func(cqltest.Request) *cqltest.Trouble {
	return func(r cqltest.Request) *cqltest.Trouble {
		for _, b := range r.Statements {
			if strings.Contains(b.Text, "INSERT INTO") && strings.Contains(b.Text, ".data_points") && bytes.HasPrefix(b.Values[0], []byte(metric)) {
				return cqltest.Unavailable
			}
		}
		return nil
	}
}

// TestDeleteBesideMetricThatIsAway: while samples of one metric cannot be written, another
// one can be deleted, and is gone at once; only deletes of the first are refused.
func TestDeleteBesideMetricThatIsAway(t *testing.T) {
	f := newFailingStore(t)
	f.node.Fail(samplesAway("away"))
	put(t, f.store, "away", "x", story(0))
	put(t, f.store, "here", "x", story(0))
	put(t, f.store, "other", "x", story(0))
	// The outage is to be older than what a request waits.
	for h := f.store.spool.Health(); h.SinkError == nil || time.Since(h.SinkSince) < f.store.cfg.OutageGrace; h = f.store.spool.Health() {
		time.Sleep(20 * time.Millisecond)
	}
	put(t, f.store, "here", "y", story(1))
	remove := func(metric string) error {
		return f.store.Delete(t.Context(), store.Deletion{Metric: metric, Range: model.AllTime})
	}
	var unavailable *store.UnavailableError
	began := time.Now()
	err := remove("here")
	for errors.As(err, &unavailable) && time.Since(began) < 5*time.Minute { // it waits a second, and the machine may be slow
		err = remove("here")
	}
	if err != nil {
		t.Fatalf("after %v: %v", time.Since(began), err)
	}
	if got := f.hosts(f.store, "here") + f.hosts(f.beside, "here"); got != "" {
		t.Errorf("after the delete: %s", got)
	}
	for metric, want := range map[string]string{"away": "x 5", "other": "x 5"} {
		if got := f.hosts(f.store, metric); got != want {
			t.Errorf("%s: %s, want %s", metric, got, want)
		}
	}
	if got := f.metrics(); slices.Contains(got, "here") || !slices.Contains(got, "away") {
		t.Errorf("names: %q", got)
	}
	if err := remove("away"); !errors.As(err, &unavailable) {
		t.Errorf("delete what is away: %v", err)
	}
	put(t, f.store, "here", "z", story(2))
	if got := f.hosts(f.store, "here"); got != "z 5" {
		t.Errorf("written after the delete: %s", got)
	}
	f.node.Mend()
	if err := f.flush(); err != nil {
		t.Fatal(err)
	}
	for metric, want := range map[string]string{"away": "x 5", "other": "x 5", "here": "z 5"} {
		for _, s := range []*Store{f.store, f.beside} {
			if got := f.hosts(s, metric); got != want {
				t.Errorf("at the end, %s: %s, want %s", metric, got, want)
			}
		}
	}
	if err := errors.Join(remove("here"), remove("away")); err != nil {
		t.Error(err)
	}
	if got := f.metrics(); !slices.Equal(got, []string{"other"}) {
		t.Errorf("names at the end: %q", got)
	}
}

// metrics are the names that the store lists.
func (f *failingStore) metrics() []string {
	f.t.Helper()
	v, err := f.store.View(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	defer v.Close()
	names, _, err := v.Names(f.t.Context(), store.NamesQuery{Kind: store.MetricNames})
	if err != nil {
		f.t.Fatal(err)
	}
	return names
}
