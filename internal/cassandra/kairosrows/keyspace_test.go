package kairosrows

import (
	"errors"
	"flag"
	"strings"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
	"varve/internal/store"
)

var longKeyspaces = flag.Bool("cassandra.long", false, "run tests that start Cassandra nodes of their own")

// TestOwnTablesVanish: while the inverted index is missing, no sample of a new series is
// dropped. An index that is made again does not count as complete.
func TestOwnTablesVanish(t *testing.T) {
	b := newBench(t, ownKeyspace(), DefaultWriteConfig(), "")
	cqltest.Drop(t, b.ks.Session)
	metric := b.name("m")
	b.write(manySeries(metric, 10))
	reopen := func() error {
		_, err := schema.Open(b.ctx, b.ks.Session, ownKeyspace())
		return err
	}
	cqltest.Must(t, b.ks.Session, "DROP TABLE "+b.ks.Name+".varve_row_index")
	fresh := new(memory).longs(longSeries(metric, "host", "fresh"), 0, someTime)
	for range 2 {
		err := b.writer.write(b.ctx, time.Now().UnixMilli(), fresh)
		if refused := refusalOf(err); refused == nil || refused.Reason != cql.NoSuchTable {
			t.Fatalf("write without the table: %v", err)
		}
	}
	if refusals := b.writer.Refusals(); len(refusals) > 0 {
		t.Errorf("dropped: %+v", refusals)
	}
	var refused *schema.Error
	if err := reopen(); !errors.As(err, &refused) || !strings.Contains(err.Error(), "drop varve_row_state too") {
		t.Errorf("opened without the index: %v", err)
	}
	cqltest.Must(t, b.ks.Session, "DROP TABLE "+b.ks.Name+".varve_row_state")
	if err := reopen(); err != nil {
		t.Fatal(err)
	}
	if err := b.writer.write(b.ctx, time.Now().UnixMilli(), fresh); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"fresh", "h00003"} {
		found, err := b.reader().Look().Lookup(b.ctx, store.Selection{Metric: metric, Range: model.AllTime, Matchers: []model.Matcher{oneOf("host", host)}})
		if err != nil || len(found) != 1 {
			t.Errorf("%s: %v, %v", host, found, err)
		}
	}
}
