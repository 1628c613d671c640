package read

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/cover"
	"varve/internal/cassandra/kairosrows/kairosrowstest"
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/collectors"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/store"
)

// A readBench is a keyspace on the shared node, and a Reader of it.
type readBench struct {
	*keyspacetest.Bench
	reader *Reader
}

// readConfig has no work in the background, and believes in one clock.
func readConfig() Config {
	c := DefaultConfig()
	c.CoverInterval = 24 * time.Hour
	c.Settle = 0
	return c
}

// newReadBench opens a keyspace that load has filled, or the shared one if load is
// nil. Its statements have write timestamps of long ago.
func newReadBench(t testing.TB, read Config, load func(*cql.Session)) *readBench {
	t.Helper()
	b := &readBench{}
	if load == nil {
		b.Bench = keyspacetest.New(t, schema.DefaultConfig(), "")
	} else {
		b.Bench = keyspacetest.Loaded(t, load)
	}
	b.Stamp = 1_700_000_000_000
	var err error
	if b.reader, err = New(b.KS, read, Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.reader.Close)
	return b
}

func (b *readBench) lookup(l *Look, sel store.Selection) []SeriesRows {
	b.T.Helper()
	if l == nil {
		l = b.reader.Look()
	}
	found, err := l.Lookup(b.T.Context(), sel)
	if err != nil {
		b.T.Fatal(err)
	}
	return found
}

// samplesOf reads rows to text: time -> value.
func (b *readBench) samplesOf(l *Look, s model.Series, rows []Row, o store.ReadOptions) map[int64]string {
	b.T.Helper()
	samples := map[int64]string{}
	for _, r := range rows {
		times, values := b.readRow(l, s, r, o)
		for i, ms := range times {
			if old, twice := samples[ms]; twice {
				b.T.Errorf("%s has %d twice: %s and %s", s, ms, old, values[i])
			}
			samples[ms] = values[i]
		}
	}
	return samples
}

func (b *readBench) readRow(l *Look, s model.Series, r Row, o store.ReadOptions) (times []int64, values []string) {
	b.T.Helper()
	c := l.ReadRow(b.T.Context(), s, r, o)
	defer c.Close()
	for {
		block, err := c.Next()
		if err != nil {
			b.T.Fatal(err)
		}
		if block == nil {
			return times, values
		}
		for i, ms := range block.Times {
			times = append(times, ms)
			values = append(values, valueText(s.Type.Kind(), &block.Columns, i))
		}
	}
}

func valueText(k model.Kind, c *model.Columns, i int) string {
	switch {
	case k.Fixed():
		return fmt.Sprintf("%x", c.Values[i])
	case k.Variable():
		return fmt.Sprintf("%q", c.Bytes(i))
	}
	return "null"
}

// dumpedLine is a row of a dump of data_points.
type dumpedLine struct{ Key, Column1, Value string }

// recordedSamples reads what a recorded keyspace holds: metric -> series -> time
// -> value.
func recordedSamples(t *testing.T, files fs.FS, spec rowtime.Spec) map[string]map[string]map[int64]string {
	t.Helper()
	text, err := fs.ReadFile(files, "data_points.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]map[int64]string{}
	unhex := func(s string) []byte {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for scanner := bufio.NewScanner(bytes.NewReader(text)); scanner.Scan(); {
		var line dumpedLine
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		key, err := rowtime.ParseKey(string(unhex(line.Key)))
		if err != nil {
			t.Fatal(err)
		}
		column, err := rowtime.ParseColumn(unhex(line.Column1))
		if err != nil {
			t.Fatal(err)
		}
		bits, data, err := rowtime.DecodeValue(key.Type.Kind(), unhex(line.Value))
		if err != nil {
			t.Fatal(err)
		}
		series := model.Series{Metric: key.Metric, Tags: key.Tags, Type: key.Type}
		if all[key.Metric] == nil {
			all[key.Metric] = map[string]map[int64]string{}
		}
		if all[key.Metric][series.String()] == nil {
			all[key.Metric][series.String()] = map[int64]string{}
		}
		var one model.Columns
		switch k := key.Type.Kind(); {
		case k.Fixed():
			one.AppendFixed(0, bits, 0)
		case k.Variable():
			one.AppendBytes(0, data, 0)
		default:
			one.AppendNull(0, 0)
		}
		all[key.Metric][series.String()][spec.Time(key.RowTimeMS, column)] = valueText(key.Type.Kind(), &one, 0)
	}
	return all
}

// TestRecordedKeyspaces reads all that KairosDB wrote: cold, again from the
// caches, backwards, and by each tag of some series. It reads one keyspace, and
// with -cassandra.long all three.
func TestRecordedKeyspaces(t *testing.T) {
	for _, name := range kairosrowstest.Names {
		if name != "seconds" && !*keyspacetest.Long {
			continue // the other two are like what the other tests make
		}
		t.Run(name, func(t *testing.T) {
			b := newReadBench(t, readConfig(), func(s *cql.Session) { kairosrowstest.Load(t, s, name) })
			want := recordedSamples(t, kairosrowstest.Files(name), b.KS.Spec)
			b.checkMetricNames(want)
			for metric, series := range want {
				for _, o := range []store.ReadOptions{{}, {}, {Descending: true}} {
					o.Range = model.AllTime
					l := b.reader.Look()
					got := map[string]map[int64]string{}
					for _, s := range b.lookup(l, store.Selection{Metric: metric, Range: model.AllTime}) {
						if samples := b.samplesOf(l, s.Series, s.Rows, o); len(samples) > 0 {
							got[s.Series.String()] = samples
						}
					}
					if diff := cmp.Diff(series, got); diff != "" {
						t.Fatalf("%s of %s, descending %v (-want +got):\n%s", metric, name, o.Descending, diff)
					}
				}
				if slices.Contains([]string{"fix.many", "fix.tags", "fix.indexed.host", "fix.negative"}, metric) {
					b.checkMatchers(metric)
				}
			}
		})
	}
}

func (b *readBench) checkMetricNames(want map[string]map[string]map[int64]string) {
	b.T.Helper()
	names, more, err := b.reader.Look().Names(b.T.Context(), store.NamesQuery{Kind: store.MetricNames})
	if err != nil || more {
		b.T.Fatalf("names: more %v, %v", more, err)
	}
	for metric := range want {
		if !slices.Contains(names, metric) {
			b.T.Errorf("metric %q is not listed", metric)
		}
	}
}

// checkMatchers compares selective lookups, before the inverted index has the
// metric and after, with what filtering all series gives.
func (b *readBench) checkMatchers(metric string) {
	b.T.Helper()
	all := b.lookup(nil, store.Selection{Metric: metric, Range: model.AllTime})
	sortFound(all)
	check := func(state string) {
		for i, s := range all {
			if i%37 > 1 {
				continue // some will do
			}
			var matchers []model.Matcher
			for name, value := range s.Series.Tags.All() {
				matchers = append(matchers, model.Matcher{Tag: name, Values: []string{value, "no such value"}})
				var want []SeriesRows
				for _, other := range all {
					if model.MatchesAll(matchers, other.Series.Tags) {
						want = append(want, other)
					}
				}
				got := b.lookup(nil, store.Selection{Metric: metric, Matchers: matchers, Range: model.AllTime})
				sortFound(got)
				if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(got)); diff != "" {
					b.T.Fatalf("%s with %v, %s (-want +got):\n%s", metric, matchers, state, diff)
				}
			}
		}
	}
	check("not covered")
	times := map[int64]bool{}
	for _, s := range all {
		for _, r := range s.Rows {
			times[r.TimeMS] = true
		}
	}
	passes, err := cover.New(b.KS, cover.Config{Interval: time.Hour}, b.reader, cover.Options{})
	if err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(passes.Close)
	for ms := range maps.Keys(times) {
		if covered, err := passes.Cover(b.T.Context(), rowkey.Partition{Metric: metric, TimeMS: ms}); err != nil || !covered {
			b.T.Fatalf("cover %s at %d: %v, %v", metric, ms, covered, err)
		}
	}
	check("covered")
	b.reader.postings = newPostingsCache(0, time.Now, collectors.Named(""))
	check("covered, without cache")
	b.reader.postings = newPostingsCache(1<<20, time.Now, collectors.Named(""))
}

func sortFound(found []SeriesRows) {
	slices.SortFunc(found, func(a, b SeriesRows) int { return a.Series.Compare(b.Series) })
}

func TestReadConfig(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	bad := Config{PostingsCacheBytes: -1, PostingsCacheAge: -1, ChunkCacheBytes: -1, ChunkCacheAge: -1, FinishedAfter: -1,
		IndexReads: 0, Settle: -1, KairosDBLag: 2 * time.Hour, CoverRate: -1, CoverInterval: 0}
	err := bad.Validate()
	for i := range reflect.TypeFor[Config]().NumField() {
		tag := reflect.TypeFor[Config]().Field(i).Tag
		key := tag.Get("yaml") + tag.Get("tune") // a setting or a constant
		if err == nil || !strings.Contains(err.Error(), key+": ") {
			t.Errorf("%s is not reported: %v", key, err)
		}
	}
}

// TestRegister: metrics are registered all or none, and taken back.
