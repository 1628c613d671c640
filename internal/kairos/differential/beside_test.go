package differential

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/cassandra"
	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/kairosrows"
	"varve/internal/cassandra/layout"
	"varve/internal/originals"
	"varve/internal/rowtime"
)

var (
	besideFlag   = flag.Int("differential.beside", 150, "number of questions to Varve and KairosDB on one keyspace, over all keyspaces")
	keyspaceFlag = flag.String("differential.keyspace", "", "the only kind of keyspace to be asked about")
)

// A shared is a kind of keyspace that both sides use. All have rows of three weeks.
type shared struct {
	name    string
	seconds bool
	before  []string // statements in the empty keyspace, before anybody opens it
	ours    bool     // Varve makes the tables, not KairosDB
	kairos  originals.KairosDBOptions
}

var sharedKinds = []shared{
	{name: "milliseconds", kairos: originals.KairosDBOptions{CompactStorage: true, TagIndex: `["*"]`}},
	{name: "seconds", seconds: true, ours: true, kairos: originals.KairosDBOptions{
		RowTimeUnit: "SECONDS", RowWidth: rowMS, TagIndex: `["*"]`}},
	{name: "legacy", before: []string{
		"CREATE TABLE string_index (key blob, column1 text, value blob, PRIMARY KEY (key, column1))",
		"INSERT INTO string_index (key, column1, value) VALUES (textAsBlob('metric_names'), 'old.metric', 0x00) USING TIMESTAMP 1",
	}},
}

// TestBeside sends random questions to Varve and to the original while both use one
// keyspace. Each point and each deletion goes to one of them, drawn at random; a Varve
// with an embedded store, the model, gets all of them. Varve, KairosDB and the model
// must give the same answers.
func TestBeside(t *testing.T) {
	for _, kind := range sharedKinds {
		if *keyspaceFlag != "" && *keyspaceFlag != kind.name {
			continue
		}
		t.Run(kind.name, func(t *testing.T) {
			r := newRun(startBeside(t, kind))
			r.seconds = kind.seconds
			r.all((*besideFlag + len(sharedKinds) - 1) / len(sharedKinds))
		})
	}
}

func startBeside(t *testing.T, kind shared) *pair {
	config := cqltest.Config(originals.Cassandra(t))
	session := cqltest.Keyspace(t, config, cql.Options{})
	for _, text := range kind.before {
		cqltest.Must(t, session, text)
	}
	client := newClient(t)
	p := &pair{t: t, store: openEmbedded(t), tagIndexed: kind.kairos.TagIndex != ""}
	p.model = &peer{url: startVarve(t, p.store), client: client}
	kairos := func() {
		o := kind.kairos
		o.Cassandra, o.Keyspace = config.Hosts, config.Keyspace
		// KairosDB puts all new rows of a delivery, once for each indexed tag, into one
		// batch. Cassandra refuses more than 50 KiB, which KairosDB does not notice. Of rows
		// with a tag of 240 bytes, as some worlds have, 50 are too many.
		o.Settings = map[string]string{"queue_processor.batch_size": "20"}
		p.kairos = &peer{url: originals.StartKairosDB(t, o).URL, client: client}
	}
	varve := func() { p.varve = &peer{url: startVarve(t, openShared(t, config, kind)), client: client} }
	if kind.ours {
		varve()
		kairos()
	} else {
		kairos()
		varve()
	}
	return p
}

// believed is how long Varve caches names and tags of a keyspace that KairosDB changes,
// too.
const believed = time.Second

// openShared opens Varve's store over the keyspace. It caches names and tags only for a
// short time, since KairosDB does not report what it deletes there.
func openShared(t *testing.T, config cql.Config, kind shared) *cassandra.Store {
	c, rows := cassandra.DefaultConfig(), kairosrows.DefaultSettings()
	c.Config = config
	c.Spool.Linger = 20 * time.Millisecond
	rows.Read.PostingsCacheAge = believed
	if kind.kairos.TagIndex != "" {
		rows.Write.TagIndex = []string{"include all"}
	}
	if kind.seconds {
		rows.Schema.RowTimeUnit, rows.Schema.RowWidth = rowtime.Seconds.String(), rowMS
	}
	st, err := cassandra.Open(vfs.NewMem(), "spool", c, cassandra.Options{Layouts: layout.Layouts{layout.Default: kairosrows.NewLayout(rows)}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := st.WaitReady(ctx); err != nil {
		st.Close()
		t.Fatal(err)
	}
	if got := strings.ToLower(st.Status().Written.Keyspace.Rows.TimeUnit); got != kind.name {
		t.Errorf("the keyspace was opened as %s, want %s", got, kind.name)
	}
	return st
}

// wholeSeconds cuts the times of the points to whole seconds, as a keyspace of seconds does. Of
// points of a round that differ only in fractions, one stays.
func (w *world) wholeSeconds() {
	kept, owners, taken := w.points[:0], map[string]string{}, map[string]bool{}
	for _, p := range w.points {
		p.TimeMS = floorSecond(p.TimeMS)
		own := fmt.Sprint(p.Round, p.series(), p.TimeMS)
		if taken[own] {
			continue
		}
		// Strings and large numbers of several series must not meet, see fill.
		if p.Type == "string" || len(fmt.Sprint(p.Value)) > 15 {
			at := fmt.Sprint(p.Metric, p.TimeMS, p.Type)
			if owner, met := owners[at]; met && owner != p.series() {
				continue
			}
			owners[at] = p.series()
		}
		taken[own] = true
		kept = append(kept, p)
	}
	w.points = kept
	w.low, w.high = floorSecond(w.low), floorSecond(w.high)
}

func floorSecond(ms int64) int64 {
	rest := ms % 1000
	if rest < 0 {
		rest += 1000
	}
	return ms - rest
}

// draw draws a question that the keyspace can answer. Points of save_as have fractions
// of a second.
func (r *run) draw(g maker, w *world) question {
	for {
		if q := r.trimmed(g.question(w)); !r.seconds || savedBy(q) == nil {
			return q
		}
	}
}

// trimmed moves the range to whole seconds if needed: KairosDB answers up to a second
// more than requested.
func (r *run) trimmed(q question) question {
	if r.seconds {
		for _, bound := range []string{"start_absolute", "end_absolute"} {
			if ms, ok := q.Body[bound].(int64); ok {
				q.Body[bound] = floorSecond(ms)
			}
		}
	}
	return q
}
