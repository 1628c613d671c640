package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/units"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// put adds one long sample of metric{h=tag}, or returns why not.
func put(w *ingest.Writer, metric, tag string, ms int64) error {
	a := w.Find(model.Long, []byte(metric), []byte(tag))
	if a == nil {
		var err error
		names := ingest.Names{Metric: metric, Tags: []model.Tag{{Name: "h", Value: tag}}}
		if a, err = w.Resolve(model.Long, []byte(metric), []byte(tag), &names); err != nil {
			return err
		}
	}
	w.Batch().AddLong(a.Ref, ms, ms, 0)
	return nil
}

func TestTTL(t *testing.T) {
	const (
		nowMS   = 1_700_000_000_000
		hour    = 3600
		day     = 24 * hour
		century = 36_525 * day
		gone    = -1 // refused as expired
		bad     = -2 // refused as a time-to-live
		never   = ingest.NeverExpires
	)
	for _, c := range []struct {
		name     string
		standard time.Duration // default_ttl
		force    bool
		from     ingest.TTLFrom
		ms       int64
		sent     uint32
		want     int64
	}{
		{"none", 0, false, "write", nowMS, 0, 0},
		{"sent", 0, false, "write", nowMS, 7, 7},
		{"default", time.Hour, false, "write", nowMS, 0, hour},
		{"default, sent", time.Hour, false, "write", nowMS, 7, 7},
		{"default, sent as 0", time.Hour, false, "write", nowMS, never, 0},
		{"no default, sent as 0", 0, false, "write", nowMS, never, 0},
		{"forced", time.Hour, true, "write", nowMS, 7, hour},
		{"forced, sent as 0", time.Hour, true, "write", nowMS, never, hour},
		{"forced to none", 0, true, "write", nowMS, 7, 0},

		{"a second old", 0, false, "write", nowMS - 1000, 7, 8},
		{"a part of a second old", 0, false, "write", nowMS - 1, 7, 8},
		{"older than its ttl", 0, false, "write", nowMS - hour*1000, 7, hour + 7},
		{"before 1970", 0, false, "write", -1000, 7, nowMS/1000 + 8},
		{"just ahead", 0, false, "write", nowMS + 999, 7, 7},
		{"ahead", 0, false, "write", nowMS + 5000, 7, 2},
		{"ahead by its ttl", 0, false, "write", nowMS + 7000, 7, 1},
		{"the last instant", 0, false, "write", math.MaxInt64, 7, 1},
		{"the first instant", 0, false, "write", math.MinInt64, 7, bad},
		{"the first instant, for ever", 0, false, "write", math.MinInt64, never, 0},
		{"a century old", 0, false, "write", nowMS - century*1000, 7, century + 7},
		{"more than a century old", 0, false, "write", nowMS - century*1000 - 1, 7, bad},
		{"a century old, the longest", 0, false, "write", nowMS - century*1000, model.MaxTTL, century + model.MaxTTL},
		{"default, old", time.Hour, false, "write", nowMS - 2*hour*1000, 0, 3 * hour},

		// A long one is rounded up by at most a part in 1024.
		{"late, long", 0, false, "write", nowMS - 1000, day, day + 84},
		{"later, long", 0, false, "write", nowMS - 84_000, day, day + 84},
		{"later still, long", 0, false, "write", nowMS - 85_000, day, day + 168},
		{"the longest", 0, false, "write", nowMS - 10_000, model.MaxTTL, model.MaxTTL + 10},

		{"from its time", 0, false, "timestamp", nowMS - 5000, 7, 7},
		{"from its time, of the future", 0, false, "timestamp", math.MaxInt64, 7, 7},
		{"from its time, last millisecond", 0, false, "timestamp", nowMS - 6999, 7, 7},
		{"from its time, over", 0, false, "timestamp", nowMS - 7000, 7, gone},
		{"from its time, for ever", time.Hour, false, "timestamp", 0, never, 0},
		{"from its time, default over", time.Hour, false, "timestamp", nowMS - hour*1000, 0, gone},
		{"from its time, the first instant", 0, false, "timestamp", math.MinInt64, 7, gone},
	} {
		r := &ingesttest.Recorder{}
		got := int64(bad)
		r.OnAppend = func(b *store.Batch) error {
			got = int64(b.Samples[0].TTL)
			return nil
		}
		p, reg := ingesttest.NewPipelineAt(r, func(x *ingest.Config) {
			x.DefaultTTL, x.ForceDefaultTTL, x.TTLFrom = c.standard, c.force, c.from
		}, func() time.Time { return time.UnixMilli(nowMS) })
		w := p.NewWriter(p.Protocol("test"), "peer", 0)
		for kind, typ := range map[string]model.Type{"long": model.TypeLong, "double": model.TypeDouble, "string": model.TypeString, "null": model.TypeNull} {
			got = bad
			_, err := w.Ingest(context.Background(), 1, func() error {
				ref, err := w.ResolveTyped(typ, &ingest.Names{Metric: "m", Tags: []model.Tag{{Name: "h", Value: "a"}}})
				if err != nil {
					return err
				}
				var f *ingest.Fault
				switch typ {
				case model.TypeLong:
					f = w.AddLong(ref, c.ms, 1, c.sent)
				case model.TypeDouble:
					f = w.AddDouble(ref, c.ms, 1, c.sent)
				case model.TypeString:
					f = w.AddBytes(model.String, ref, c.ms, []byte("x"), c.sent)
				default:
					f = w.AddNull(ref, c.ms, c.sent)
				}
				if f != nil {
					if f.Reason == ingest.Expired {
						got = gone
					}
					w.Reject(f, nil)
				}
				return nil
			})
			if err != nil || got != c.want {
				t.Errorf("%s, %s: %d, %v; want %d", c.name, kind, got, err, c.want)
			}
		}
		refused := ingesttest.Counters(t, reg, "varve_ingest_rejected_total")
		if (refused["test,expired"] == 4) != (c.want == gone) || (refused["test,bad_ttl"] == 4) != (c.want == bad) {
			t.Errorf("%s: refused %v", c.name, refused)
		}
	}
	for in, want := range map[int64]uint32{0: never, 1: 1, model.MaxTTL: model.MaxTTL} {
		if got, f := ingest.SentTTL(in); f != nil || got != want {
			t.Errorf("sent %d: %d, %v", in, got, f)
		}
	}
	for _, in := range []int64{-1, model.MaxTTL + 1, math.MaxInt64, math.MinInt64} {
		if _, f := ingest.SentTTL(in); f == nil || f.Reason != ingest.BadTTL {
			t.Errorf("sent %d: %v", in, f)
		}
	}
}

func TestStaleBlockIsParsedAgainAndCountedOnce(t *testing.T) {
	r := &ingesttest.Recorder{}
	p, reg := ingesttest.NewPipeline(r, nil)
	w := p.NewWriter(p.Protocol("test"), "peer", 0)
	fills := 0
	stale := 2
	r.OnAppend = func(*store.Batch) error {
		if stale--; stale >= 0 {
			r.Forget()
		}
		return nil
	}
	n, err := w.Ingest(context.Background(), 10, func() error {
		fills++
		w.Reject(ingest.Faultf(ingest.BadValue, "no"), []byte("input"))
		return put(w, "m", "a", 1)
	})
	if n != 1 || err != nil || fills != 3 {
		t.Fatalf("stored %d, %v, in %d tries", n, err, fills)
	}
	if got := r.Text(); got != "m{h=a} long 1 1" {
		t.Errorf("stored %q", got)
	}
	for name, want := range map[string]map[string]float64{
		"varve_ingest_rejected_total":     {"test,bad_value": 1},
		"varve_ingest_samples_total":      {"test": 1},
		"varve_ingest_stale_blocks_total": {"": 2},
	} {
		if got := ingesttest.Counters(t, reg, name); !reflect.DeepEqual(got, want) {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
}

// TestForgottenSeriesCostOthersNothing: blocks with a forgotten series are parsed
// once more and then know it again; other blocks, and aliases, are not touched.
func TestForgottenSeriesCostOthersNothing(t *testing.T) {
	r := &ingesttest.Recorder{}
	p, reg := ingesttest.NewPipeline(r, nil)
	w := p.NewWriter(p.Protocol("test"), "peer", 0)
	fills := 0
	write := func(metrics ...string) {
		t.Helper()
		if _, err := w.Ingest(context.Background(), len(metrics), func() error {
			fills++
			for _, m := range metrics {
				if err := put(w, m, "a", int64(fills)); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, wantFills int, wantMisses float64) {
		t.Helper()
		misses := ingesttest.Counters(t, reg, "varve_ingest_alias_misses_total")[""]
		if fills != wantFills || misses != wantMisses {
			t.Fatalf("%s: %d fills, %v misses; want %d, %v", what, fills, misses, wantFills, wantMisses)
		}
	}
	tags := model.MustTags("h", "a")
	write("gone", "kept")
	write("other")
	check("new", 2, 3)
	r.Forget(model.Series{Metric: "gone", Type: model.TypeLong, Tags: tags})
	write("other")
	check("a block of others", 3, 3)
	write("gone", "kept")
	check("a block with the series", 5, 5)
	write("gone", "kept")
	write("other")
	check("afterwards", 7, 5)
	if got, want := r.Text(), "gone{h=a} long 5 5"; !strings.Contains(got, want) {
		t.Errorf("stored %q, want %q in it", got, want)
	}
}

func TestEndlesslyStaleStoreIsUnavailable(t *testing.T) {
	r := &ingesttest.Recorder{OnAppend: func(*store.Batch) error { return store.ErrStale }}
	p, reg := ingesttest.NewPipeline(r, nil)
	w := p.NewWriter(p.Protocol("test"), "peer", 0)
	_, err := w.Ingest(context.Background(), 1, func() error {
		w.Reject(ingest.Faultf(ingest.BadValue, "no"), nil)
		return put(w, "m", "a", 1)
	})
	if !store.Passes(err) {
		t.Errorf("error %v", err)
	}
	if got := ingesttest.Counters(t, reg, "varve_ingest_rejected_total"); len(got) != 0 {
		t.Errorf("refused %v in a block that was not stored", got)
	}
	if got := ingesttest.Counters(t, reg, "varve_ingest_samples_in_flight"); len(got) != 0 {
		t.Errorf("still in flight: %v", got)
	}
}

func TestNewSeriesLimits(t *testing.T) {
	now := time.Unix(1700000000, 0)
	cfg := ingest.DefaultConfig()
	cfg.NewSeriesBurst, cfg.NewSeriesPerSecond, cfg.MaxSeries = 2, 1, 4
	r := &ingesttest.Recorder{}
	p := ingest.New(r, cfg, ingest.Options{Registerer: prometheus.NewRegistry(), Now: func() time.Time { return now }})
	w := p.NewWriter(p.Protocol("test"), "peer", 0)
	try := func(tag string) (limit string) {
		t.Helper()
		if _, err := w.Ingest(context.Background(), 1, func() error {
			err := put(w, "m", tag, 1)
			var l *store.LimitError
			if errors.As(err, &l) {
				limit = l.Limit
				return nil
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return limit
	}
	want := []string{"", "", "ingest.new_series_per_second", ""}
	if got := []string{try("a"), try("b"), try("c"), try("a")}; !slices.Equal(got, want) {
		t.Errorf("limits %q, want %q", got, want)
	}
	now = now.Add(time.Second)
	want = []string{"", "ingest.new_series_per_second"}
	if got := []string{try("c"), try("d")}; !slices.Equal(got, want) {
		t.Errorf("a second later %q, want %q", got, want)
	}
	now = now.Add(time.Hour)
	want = []string{"", "ingest.max_series", "", ""}
	if got := []string{try("d"), try("e"), try("a"), try("d")}; !slices.Equal(got, want) {
		t.Errorf("at max_series %q, want %q", got, want)
	}
}

// TestNamesAreBounded: new series are refused that are too long, or when the names of
// all take too much memory; known ones go on, also above a bound that was lowered.
func TestNamesAreBounded(t *testing.T) {
	cfg := ingest.DefaultConfig()
	cfg.MaxSeriesMemory = 300_000
	r, reg := &ingesttest.Recorder{}, prometheus.NewRegistry()
	var log lockedText // refused inputs are reported by a timer
	p := ingest.New(r, cfg, ingest.Options{Registerer: reg, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	w := p.NewWriter(p.Protocol("test"), "peer", 0)
	names := func(fill string, tags, length int) *ingest.Names {
		n := &ingest.Names{Metric: "m"}
		for i := range tags {
			n.Tags = append(n.Tags, model.Tag{Name: fmt.Sprint("t", i), Value: strings.Repeat(fill, length)})
		}
		return n
	}
	try := func(n *ingest.Names) (text string) {
		t.Helper()
		_, err := w.Ingest(context.Background(), 2, func() error {
			if err := put(w, "m", "valid", 1); err != nil {
				return err
			}
			ref, err := w.ResolveTyped(model.TypeLong, n)
			var f *ingest.Fault
			var l *store.LimitError
			switch {
			case err == nil:
				w.AddLong(ref, 1, 1, 0)
			case errors.As(err, &f) && errors.As(err, &l):
				w.Reject(f, nil)
				text = f.Text
			default:
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	steps := func(steps ...[2]any) {
		t.Helper()
		for i, step := range steps {
			if got, want := try(step[0].(*ingest.Names)), step[1].(string); got != want && (want == "" || !strings.HasPrefix(got, want)) {
				t.Errorf("step %d: %q, want %q", i, got, want)
			}
		}
	}
	const tooMuch = "limit ingest.max_series_memory of 300000 reached, at least 307"
	steps([2]any{names("a", 15, 4096), ""},
		[2]any{names("a", 17, 4096), "limit bytes of a series of 65535 reached, at least 69828 needed: names and tags of a series of metric m"},
		[2]any{names(":", 15, 4096), "limit bytes of a series of 65535 reached, at least 122"},
		[2]any{names("b", 15, 4096), ""},
		[2]any{names("c", 15, 4096), ""},
		[2]any{names("d", 15, 4096), tooMuch},
		[2]any{names("a", 15, 4096), ""},
		[2]any{names("e", 1, 10), ""})
	cfg.MaxSeriesMemory = 190_000 // more than 80 % of it are used
	p.SetSeriesLimits(cfg)
	steps([2]any{names("x", 1, 10), ""})
	if said := log.take(); !strings.Contains(said, "the names of all series take ") || !strings.Contains(said, "ingest.max_series_memory is 190000;") {
		t.Errorf("log: %s", said)
	}
	cfg.MaxSeriesMemory = 1
	p.SetSeriesLimits(cfg)
	steps([2]any{names("a", 15, 4096), ""}, [2]any{names("f", 1, 1), "limit ingest.max_series_memory of 1 reached"})
	cfg.MaxSeriesMemory = 1 << 20
	p.SetSeriesLimits(cfg)
	steps([2]any{names("d", 15, 4096), ""})
	rejected := ingesttest.Counters(t, reg, "varve_ingest_rejected_total")
	if rejected["test,series_too_long"] != 2 || rejected["test,max_series_memory"] != 2 {
		t.Errorf("refused %v", rejected)
	}
	if n := ingesttest.Counters(t, reg, "varve_ingest_series_memory_bytes")[""]; n != float64(r.SeriesBytes()) {
		t.Errorf("%v bytes of names are shown, want %d", n, r.SeriesBytes())
	}
}

// A block ends after many inputs even if all are refused: whether the request has ended, or the server, is
// looked at between blocks only.
func TestBlockOfRefusedInputs(t *testing.T) {
	p, _ := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
	w := p.NewWriter(p.Protocol("test"), "peer", 0)
	for range 2 { // the count begins again with the next block
		inputs := 0
		if _, err := w.Ingest(t.Context(), 1, func() error {
			for ; inputs < 1<<20 && !w.Full(); inputs++ {
				w.Count(ingest.BadTag)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if want := 8 * ingest.BlockSamples; inputs != want {
			t.Errorf("the block ended after %d inputs, want %d", inputs, want)
		}
	}
}

// A block ends with its samples or with the bytes of its values, whichever reaches its limit first.
func TestFullBlocks(t *testing.T) {
	for typ, want := range map[model.Type]int{model.TypeLong: ingest.BlockSamples, model.TypeString: ingest.BlockBytes >> 10} {
		p, _ := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
		w := p.NewWriter(p.Protocol("test"), "peer", 0)
		value := make([]byte, 1<<10)
		n, err := w.Ingest(t.Context(), 2*ingest.BlockSamples, func() error {
			ref, err := w.ResolveTyped(typ, &ingest.Names{Metric: "m"})
			for ms := int64(0); err == nil && !w.Full() && ms < ingest.BlockSamples+10; ms++ {
				var f *ingest.Fault
				if typ == model.TypeLong {
					f = w.AddLong(ref, ms, 1, 0)
				} else {
					f = w.AddBytes(model.String, ref, ms, value, 0)
				}
				if f != nil {
					err = f
				}
			}
			return err
		})
		if err != nil || n != want {
			t.Errorf("%s: a full block has %d samples, want %d; %v", typ, n, want, err)
		}
	}
}

// A block ends before the names of its new series make a huge record of the log.
func TestBlockOfLongNames(t *testing.T) {
	r := &ingesttest.Recorder{}
	p, _ := ingesttest.NewPipeline(r, nil)
	w := p.NewWriter(p.Protocol("test"), "peer", 0)
	const series, length = 100, 50_000
	at := 0
	for at < series {
		begin := at
		if _, err := w.Ingest(context.Background(), series, func() error {
			for at = begin; at < series && !w.Full(); at++ {
				n := &ingest.Names{Metric: "m"}
				for k := range 25 {
					n.Tags = append(n.Tags, model.Tag{Name: fmt.Sprint("t", k), Value: strings.Repeat("v", length/25-10) + fmt.Sprint(at)})
				}
				ref, err := w.ResolveTyped(model.TypeLong, n)
				if err != nil {
					return err
				}
				w.AddLong(ref, 1, 1, 0)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if n := (at - begin) * length; n > ingest.BlockBytes+2*length {
			t.Fatalf("a block introduces %d bytes of names", n)
		}
	}
	if n := r.SeriesCount(); n != series {
		t.Errorf("%d series", n)
	}
}

// fullStore refuses new series of one metric.
type fullStore struct{ *ingesttest.Recorder }

func (s fullStore) Create(ctx context.Context, x model.Series) (store.Ref, error) {
	if x.Metric == "new" {
		return 0, &store.LimitError{Limit: "embedded.max_series", Max: 1}
	}
	return s.Recorder.Create(ctx, x)
}

func TestStoreThatRefusesASeriesTakesTheOthers(t *testing.T) {
	r := &ingesttest.Recorder{}
	p, _ := ingesttest.NewPipeline(fullStore{r}, nil)
	w := p.NewWriter(p.Protocol("test"), "peer", 0)
	n, err := w.Ingest(context.Background(), 2, func() error {
		var f *ingest.Fault
		if err := put(w, "new", "a", 1); !errors.As(err, &f) || f.Reason != ingest.MaxSeries {
			t.Errorf("refused with %v", err)
		}
		return put(w, "m", "a", 1)
	})
	if n != 1 || err != nil {
		t.Errorf("stored %d, %v", n, err)
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for _, c := range []struct {
		names  ingest.Names
		reason ingest.Reason
	}{
		{ingest.Names{}, ingest.BadName},
		{ingest.Names{Metric: long}, ingest.NameTooLong},
		{ingest.Names{Metric: "m", Tags: []model.Tag{{Name: "", Value: "v"}}}, ingest.BadTag},
		{ingest.Names{Metric: "m", Tags: []model.Tag{{Name: "k", Value: ""}}}, ingest.BadTag},
		{ingest.Names{Metric: "m", Tags: []model.Tag{{Name: long, Value: "v"}}}, ingest.NameTooLong},
		{ingest.Names{Metric: "m", Tags: []model.Tag{{Name: "k", Value: long}}}, ingest.NameTooLong},
		{ingest.Names{Metric: "m", Tags: []model.Tag{{Name: "k", Value: "\xff"}}}, ingest.BadUTF8},
		{ingest.Names{Metric: "m", Tags: []model.Tag{{Name: "k", Value: "1"}, {Name: "a", Value: "1"}, {Name: "k", Value: "2"}}}, ingest.BadTag},
		{ingest.Names{Metric: "m", Tags: make([]model.Tag, 65)}, ingest.TooManyTags},
	} {
		p, _ := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
		w := p.NewWriter(p.Protocol("test"), "peer", 0)
		w.Ingest(context.Background(), 1, func() error {
			_, err := w.Resolve(model.Long, []byte("h"), nil, &c.names)
			var f *ingest.Fault
			if !errors.As(err, &f) || f.Reason != c.reason {
				t.Errorf("%.60v: %v, want %v", c.names, err, c.reason)
			}
			return nil
		})
	}
}

// TestOrderOfTags: a series is the same in whatever order its tags are sent, and only the first order
// counts as a new series.
func TestOrderOfTags(t *testing.T) {
	r := &ingesttest.Recorder{}
	p, _ := ingesttest.NewPipeline(r, func(c *ingest.Config) { c.MaxSeries = 1 })
	w := p.NewWriter(p.Protocol("test"), "peer", 0)
	a, b, c := model.Tag{Name: "a", Value: "3"}, model.Tag{Name: "b", Value: "2"}, model.Tag{Name: "c", Value: "1"}
	for i, tags := range [][]model.Tag{{b, c, a}, {a, b, c}, {c, b, a}} {
		_, err := w.Ingest(context.Background(), 1, func() error {
			alias, err := w.Resolve(model.Long, []byte("m"), []byte{byte(i)}, &ingest.Names{Metric: "m", Tags: slices.Clone(tags)})
			if err == nil {
				w.Batch().AddLong(alias.Ref, int64(i), 1, 0)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"m{a=3,b=2,c=1} long 0 1", "m{a=3,b=2,c=1} long 1 1", "m{a=3,b=2,c=1} long 2 1"}
	if got := r.Samples(); !slices.Equal(got, want) || r.SeriesCount() != 1 {
		t.Errorf("%d series: %q, want one: %q", r.SeriesCount(), got, want)
	}
}

// TestAliasesStayRight sends more series than the cache holds, in changing
// orders, from several connections, while references become void.
func TestAliasesStayRight(t *testing.T) {
	r := &ingesttest.Recorder{}
	p, reg := ingesttest.NewPipeline(r, func(c *ingest.Config) { c.AliasCache = 64 << 10 })
	const series, rounds, senders = 400, 12, 3
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			w := p.NewWriter(p.Protocol("test"), "peer", 0)
			for round := range rounds {
				if s == 0 && round%4 == 3 {
					r.Forget()
				}
				_, err := w.Ingest(context.Background(), series, func() error {
					for i := range series {
						n := (i*(1+2*round) + s) % series
						if err := put(w, fmt.Sprint("m", n), fmt.Sprint("t", s), int64(n)); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	samples := r.Samples()
	if len(samples) != series*rounds*senders {
		t.Errorf("%d samples, want %d", len(samples), series*rounds*senders)
	}
	for _, s := range samples {
		var n, tag, ms, v int
		if _, err := fmt.Sscanf(s, "m%d{h=t%d} long %d %d", &n, &tag, &ms, &v); err != nil || n != v {
			t.Fatalf("%q went to the wrong series", s)
		}
	}
	if used := ingesttest.Counters(t, reg, "varve_ingest_alias_cache_bytes")[""]; used > 64<<10 {
		t.Errorf("alias cache holds %v bytes, limit is %d", used, 64<<10)
	}
}

// TestAliasesOfManySeries: all spellings that fit are found again.
func TestAliasesOfManySeries(t *testing.T) {
	p, reg := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
	w := p.NewWriter(p.Protocol("test"), "peer", 0)
	const series = 3000 // the first table has room for 512
	for round := range 2 {
		if _, err := w.Ingest(context.Background(), series, func() error {
			for i := range series {
				if err := put(w, "m", fmt.Sprint(i*(1+6*round)%series), int64(round)); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if misses := ingesttest.Counters(t, reg, "varve_ingest_alias_misses_total")[""]; misses > series {
		t.Errorf("%d series missed the cache %v times", series, misses)
	}
}

func TestSamplesInFlight(t *testing.T) {
	r := &ingesttest.Recorder{}
	inside, leave := make(chan bool), make(chan bool)
	r.OnAppend = func(*store.Batch) error { inside <- true; <-leave; return nil }
	p, _ := ingesttest.NewPipeline(r, func(c *ingest.Config) { c.MaxSamplesInFlight = 10 })
	send := func(wait time.Duration, n int) error {
		w := p.NewWriter(p.Protocol("test"), "peer", wait)
		_, err := w.Ingest(context.Background(), n, func() error { return put(w, "m", "a", 1) })
		return err
	}
	done := make(chan error)
	go func() { done <- send(0, 100) }() // more than there is room for: takes all
	<-inside
	if err := send(time.Millisecond, 1); !errors.Is(err, ingest.ErrBusy) {
		t.Errorf("no room: %v", err)
	}
	go func() { done <- send(0, 1) }() // waits for as long as it takes
	leave <- true
	<-inside
	leave <- true
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// A sender whose many blocks wait delays another one by a single block.
func TestSendersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ingesttest.Recorder{}
		inside, leave := make(chan int64), make(chan bool)
		r.OnAppend = func(b *store.Batch) error { inside <- b.Samples[0].TimeMS; <-leave; return nil }
		p, _ := ingesttest.NewPipeline(r, func(c *ingest.Config) { c.MaxSamplesInFlight = 1 })
		send := func(remote string, ms int64) {
			w := p.NewWriter(p.Protocol("test"), "", 0)
			w.SetRemote(remote)
			if _, err := w.Ingest(t.Context(), 1, func() error { return put(w, "m", "a", ms) }); err != nil {
				t.Error(err)
			}
		}
		const crowd, single = 1, 2
		for i := range 10 {
			go send(fmt.Sprintf("192.0.2.1:%d", 1000+i), crowd)
		}
		synctest.Wait()
		go send("192.0.2.2:1000", single)
		var order []int64
		for range 11 {
			synctest.Wait()
			order = append(order, <-inside)
			leave <- true
		}
		if at := slices.Index(order, single); at != 2 { // one block was inside, and it was the turn of another one
			t.Errorf("the single block is stored after %d others: %d", at, order)
		}
	})
}

// A batch names the network of its sender, so that senders take turns in the store, too.
func TestSenderOfABatch(t *testing.T) {
	var senders []string
	r := &ingesttest.Recorder{OnAppend: func(b *store.Batch) error { senders = append(senders, b.Sender.String()); return nil }}
	p, _ := ingesttest.NewPipeline(r, nil)
	w := p.NewWriter(p.Protocol("test"), "192.0.2.1:1000", 0)
	for _, next := range []string{"192.0.2.2:1000", "[2001:db8::1]:1000", ""} {
		if _, err := w.Ingest(t.Context(), 1, func() error { return put(w, "m", "a", 1) }); err != nil {
			t.Fatal(err)
		}
		w.SetRemote(next)
	}
	if want := []string{"192.0.2.1/32", "192.0.2.2/32", "2001:db8::/64"}; !slices.Equal(senders, want) {
		t.Errorf("the batches are of %q, want %q", senders, want)
	}
}

// A block whose sender leaves while it is parsed is not stored.
func TestSenderThatLeaves(t *testing.T) {
	r := &ingesttest.Recorder{OnAppend: func(*store.Batch) error { t.Error("it is offered to the store"); return nil }}
	p, _ := ingesttest.NewPipeline(r, nil)
	w := p.NewWriter(p.Protocol("test"), "peer", 0)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n, err := w.Ingest(ctx, 1, func() error {
		defer cancel()
		return put(w, "m", "a", 1)
	})
	if n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d stored, %v", n, err)
	}
}

// What a part of the store takes counts as stored, and the error says what the other part refuses.
func TestPartThatIsStored(t *testing.T) {
	p, reg := ingesttest.NewPipeline(&ingesttest.Recorder{Refused: "away"}, nil)
	w := p.NewWriter(p.Protocol("test"), "peer", 0)
	n, err := w.Ingest(t.Context(), 3, func() error {
		return errors.Join(put(w, "m", "a", 1), put(w, "away", "a", 1), put(w, "m", "a", 2))
	})
	part := ingest.PartOf(err)
	if n != 2 || part == nil || part.Refused != 1 {
		t.Errorf("%d stored, %v", n, err)
	}
	if got := ingesttest.Counters(t, reg, "varve_ingest_samples_total")["test"]; got != 2 {
		t.Errorf("%v are counted as stored", got)
	}
}

// A writer that goes to another sender rejects in the name of that one, and names that are read again
// keep nothing of the last.
func TestWriterOfAnotherSender(t *testing.T) {
	p, _ := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
	w := p.NewWriter(p.Protocol("test"), "peer", 0)
	w.SetRemote("other")
	w.Ingest(t.Context(), 1, func() error {
		w.Reject(ingest.Faultf(ingest.BadValue, "no"), nil)
		return nil
	})
	if list, _, _ := ingesttest.Rejections(t, p); len(list) != 1 || list[0].Remote != "other" {
		t.Errorf("%+v", list)
	}
	n := ingest.Names{Metric: "m", Tags: []model.Tag{{Name: "h", Value: "a"}}, TTL: 5}
	if n.Reset(); n.Metric != "" || len(n.Tags) != 0 || n.TTL != 0 {
		t.Errorf("%+v", n)
	}
}

// The gauges that alerts and dashboards read are there, and say how much of a limit is used.
func TestGauges(t *testing.T) {
	r := &ingesttest.Recorder{}
	p, reg := ingesttest.NewPipeline(r, func(c *ingest.Config) { c.MaxSeries, c.MaxSeriesMemory = 4, units.MiB })
	inFlight := -1.0
	r.OnAppend = func(*store.Batch) error {
		inFlight = ingesttest.Counters(t, reg, "varve_ingest_samples_in_flight")[""]
		return nil
	}
	w := p.NewWriter(p.Protocol("test"), "peer", 0)
	if _, err := w.Ingest(t.Context(), 3, func() error { return put(w, "m", "a", 1) }); err != nil {
		t.Fatal(err)
	}
	if got := ingesttest.Counters(t, reg, "varve_ingest_series_used_ratio")[""]; got != 0.25 || inFlight != 3 {
		t.Errorf("%v of the series are used, want 0.25; %v samples were in flight, want 3", got, inFlight)
	}
	if got := ingesttest.Counters(t, reg, "varve_ingest_series_memory_max_bytes")[""]; got != float64(units.MiB) {
		t.Errorf("the bound of the memory of series is %v, want 1 MiB", got)
	}
}

func TestRejected(t *testing.T) {
	p, _ := ingesttest.NewPipeline(&ingesttest.Recorder{}, func(c *ingest.Config) { c.RejectedKept, c.RejectedBytes = 3, 4 })
	proto := p.Protocol("test")
	for i := range 5 {
		p.Reject(proto, "peer", ingest.Faultf(ingest.BadValue, "fault %d", i), []byte("input\xff"), 2)
	}
	list, total, _ := ingesttest.Rejections(t, p)
	if total != 10 || len(list) != 3 || list[0].Detail != "fault 4" || list[2].Detail != "fault 2" {
		t.Fatalf("%d refused, kept %+v", total, list)
	}
	x := list[0]
	if x.Input != "inpu" || x.InputBytes != 6 || x.Reason != "bad_value" || x.Protocol != "test" || x.Remote != "peer" || x.Time.IsZero() {
		t.Errorf("%+v", x)
	}
}

// Messages and kept inputs hold a bounded part of a sender's text.
func TestTextsOfSendersAreCut(t *testing.T) {
	long := strings.Repeat("é", 10_000)
	if got := ingest.Brief(long); len(got) > 110 || !strings.HasSuffix(got, "é...") && !strings.HasSuffix(got, "�...") {
		t.Errorf("Brief left %d bytes, %.20q at the end", len(got), got[max(0, len(got)-20):])
	}
	if got := ingest.Brief([]byte("short")); got != "short" {
		t.Error(got)
	}
	p, _ := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
	proto := p.Protocol("test")
	p.Reject(proto, "peer", ingest.Faultf(ingest.BadValue, "no %s", long), []byte(long), 1)
	w := p.NewWriter(proto, "peer", 0)
	w.Ingest(context.Background(), 1, func() error {
		w.Reject(&ingest.Fault{Reason: ingest.BadValue, Text: "told", Detail: "kept " + long}, []byte(long))
		for range 100 {
			w.Reject(ingest.Faultf(ingest.BadValue, "no"), nil)
		}
		if !w.Noted() || w.Refused() != 101 {
			t.Errorf("%d refused, noted %v", w.Refused(), w.Noted())
		}
		return nil
	})
	list, total, _ := ingesttest.Rejections(t, p)
	if total != 102 || len(list) != 33 {
		t.Fatalf("%d refused, %d kept", total, len(list))
	}
	for _, r := range list {
		if len(r.Detail) > 1100 || len(r.Input) > 520 {
			t.Errorf("kept %d bytes of text, %d of input", len(r.Detail), len(r.Input))
		}
	}
	if x := list[31]; !strings.HasPrefix(x.Detail, "kept é") || x.InputBytes != len(long) {
		t.Errorf("%.100v", x)
	}
}

// The log counts refused inputs by reason and sender: the first at once, those that
// follow every ten seconds.
func TestRefusedInputIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lockedText
		p := ingest.New(&ingesttest.Recorder{}, ingest.DefaultConfig(), ingest.Options{
			Registerer: prometheus.NewRegistry(),
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
					return slog.Attr{}
				}
				return a
			}})),
		})
		proto := p.Protocol("test")
		told := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if got := strings.TrimSpace(log.take()); got != strings.Join(want, "\n") {
				t.Errorf("logged\n%s\nwant\n%s", got, strings.Join(want, "\n"))
			}
		}
		line := func(count int, sender, reason, detail string) string {
			return fmt.Sprintf(`msg="input refused, see /admin/rejected" count=%d protocol=test sender=%s reason=%s detail=%s`, count, sender, reason, detail)
		}
		p.Reject(proto, "10.0.0.1:1", ingest.Faultf(ingest.TooManyTags, "tags"), nil, 1)
		told(line(1, "10.0.0.1", "too_many_tags", "tags"))
		for i := range 150 {
			p.Reject(proto, fmt.Sprint("10.0.0.2:", i), ingest.Faultf(ingest.MaxSeries, "series"), nil, 1)
		}
		p.Reject(proto, "10.0.0.1:2", ingest.Faultf(ingest.TooManyTags, "tags"), nil, 1)
		w := p.NewWriter(proto, "peer", 0)
		w.Ingest(t.Context(), 1, func() error {
			w.Reject(ingest.Faultf(ingest.BadValue, "value"), nil)
			w.Reject(ingest.Faultf(ingest.BadTime, "time"), nil)
			w.Reject(ingest.Faultf(ingest.BadTime, "later"), nil) // the line has the detail of the first
			w.Count(ingest.BadTime)
			return nil
		})
		told()
		time.Sleep(10 * time.Second)
		told(line(150, "10.0.0.2", "max_series", "series"), line(1, "10.0.0.1", "too_many_tags", "tags"),
			line(3, "peer", "bad_time", "time"), line(1, "peer", "bad_value", "value"))
		for i := range 25 { // a bounded number of lines
			p.Reject(proto, fmt.Sprintf("10.0.1.%d:1", i), ingest.Faultf(ingest.BadName, "name"), nil, 2)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := log.take(); strings.Count(got, "\n") != 21 || !strings.HasSuffix(got, "count=10\n") {
			t.Error(got)
		}
		time.Sleep(time.Minute)
		told()
		p.Reject(proto, "10.0.0.1:1", ingest.Faultf(ingest.BadName, "name"), nil, 1)
		told(line(1, "10.0.0.1", "bad_name", "name"))
		p.Reject(proto, "10.0.0.1:1", ingest.Faultf(ingest.BadName, "name"), nil, 3)
		p.Close()
		told(line(3, "10.0.0.1", "bad_name", "name"))
		time.Sleep(time.Minute)
		told()
	})
}

// Only reasons that occurred are exported.
func TestReasonsThatNeverOccurAreNotExported(t *testing.T) {
	p, reg := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
	p.Reject(p.Protocol("test"), "peer", ingest.Faultf(ingest.BadName, "name"), nil, 1)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "varve_ingest_rejected_total" && len(f.Metric) != 1 {
			t.Errorf("%d counters", len(f.Metric))
		}
	}
}

func TestBodyMemoryIsBounded(t *testing.T) {
	p, reg := ingesttest.NewPipeline(&ingesttest.Recorder{}, func(c *ingest.Config) {
		c.BodyMemory, c.MaxBodyBytes, c.MaxUnpackedBytes, c.BusyWait = 100<<10, 100<<10, 100<<10, time.Millisecond
	})
	read := func() (*ingest.Body, error) {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", 70<<10)))
		return p.ReadBody(httptest.NewRecorder(), r, false)
	}
	first, err := read()
	if err != nil || len(first.Bytes) != 70<<10 {
		t.Fatal(err)
	}
	if _, err := read(); !errors.Is(err, ingest.ErrBusy) {
		t.Errorf("a second body: %v", err)
	}
	first.Release()
	again, err := read()
	if err != nil {
		t.Fatal(err)
	}
	again.Release()
	if used := ingesttest.Counters(t, reg, "varve_ingest_body_bytes"); len(used) != 0 {
		t.Errorf("still held: %v", used)
	}
}

func TestConfig(t *testing.T) {
	if err := ingest.DefaultConfig().Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	err := ingest.Config{DefaultTTL: -1, MaxSeriesMemory: -1, SamplesPerSecond: -1, BodyMemory: -1}.Validate()
	typ := reflect.TypeFor[ingest.Config]()
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Type.Kind() == reflect.Bool {
			continue
		}
		if f.Tag.Get("tune") != "" {
			continue // a constant
		}
		if key := f.Tag.Get("yaml"); key == "" || f.Tag.Get("doc") == "" || !strings.Contains(err.Error(), key+":") {
			t.Errorf("field %s: yaml %q, doc %q, reported by Validate: %v", f.Name, key, f.Tag.Get("doc"), err)
		}
	}
}

func TestConfigBounds(t *testing.T) {
	for _, c := range []struct {
		change func(*ingest.Config)
		key    string // "" is valid
	}{
		{func(c *ingest.Config) { c.DefaultTTL = -time.Second }, "default_ttl"},
		{func(c *ingest.Config) { c.DefaultTTL = 1500 * time.Millisecond }, "default_ttl"},
		{func(c *ingest.Config) { c.DefaultTTL = time.Second }, ""},
		{func(c *ingest.Config) { c.DefaultTTL = model.MaxTTL * time.Second }, ""},
		{func(c *ingest.Config) { c.DefaultTTL = (model.MaxTTL + 1) * time.Second }, "default_ttl"},
		{func(c *ingest.Config) { c.TTLFrom = "now" }, "ttl_from"},
		{func(c *ingest.Config) { c.TTLFrom = ingest.FromTimestamp }, ""},
		{func(c *ingest.Config) { c.MaxBodyBytes, c.MaxUnpackedBytes, c.BodyMemory = 1000, 2000, 2999 }, "body_memory"},
		{func(c *ingest.Config) { c.MaxBodyBytes, c.MaxUnpackedBytes, c.BodyMemory = 1000, 2000, 3000 }, ""},
		{func(c *ingest.Config) { c.BodyMemory = 2 }, ""},
		{func(c *ingest.Config) { c.BodyMemory = 0 }, ""},
		{func(c *ingest.Config) { c.BodyMemory = -1 }, "body_memory"},
		{func(c *ingest.Config) { c.MaxBodyBytes = -1 }, "max_body_bytes"},
		{func(c *ingest.Config) { c.MaxUnpackedBytes, c.BodyMemory = 2*units.GiB, 3*units.GiB }, ""},
		{func(c *ingest.Config) { c.MaxUnpackedBytes, c.BodyMemory = 2*units.GiB+1, 3*units.GiB }, "max_unpacked_bytes"},
		{func(c *ingest.Config) { c.MaxStringBytes = 0 }, "max_string_bytes"},
		{func(c *ingest.Config) { c.MaxStringBytes = 1 }, ""},
		{func(c *ingest.Config) { c.MaxStringBytes = 4 * units.MiB }, ""},
		{func(c *ingest.Config) { c.MaxStringBytes = 4*units.MiB + 1 }, "max_string_bytes"},
		{func(c *ingest.Config) { c.BodyMemory = 100 * units.GiB }, ""},
		{func(c *ingest.Config) { c.MaxTags = 0 }, "max_tags"},
		{func(c *ingest.Config) { c.MaxTags = 1 }, ""},
	} {
		cfg := ingest.DefaultConfig()
		c.change(&cfg)
		err := cfg.Validate()
		if (err == nil) != (c.key == "") || err != nil && (!strings.HasPrefix(err.Error(), c.key+": ") || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%+v: %v, want %q", cfg, err, c.key)
		}
	}
}

// brokenStore fails to create the first series.
type brokenStore struct {
	*ingesttest.Recorder
	failed bool
}

func (s *brokenStore) Create(ctx context.Context, x model.Series) (store.Ref, error) {
	if !s.failed {
		s.failed = true
		return 0, &store.UnavailableError{Reason: "no"}
	}
	return s.Recorder.Create(ctx, x)
}

// A series that could not be created gives back its place in the limit of new
// series, and only that place.
func TestFailedSeriesTakesNoPlace(t *testing.T) {
	now := time.Unix(1700000000, 0)
	p, _ := ingesttest.NewPipelineAt(&brokenStore{Recorder: &ingesttest.Recorder{}}, func(c *ingest.Config) {
		c.NewSeriesBurst, c.NewSeriesPerSecond = 2, 1
	}, func() time.Time { return now })
	w := p.NewWriter(p.Protocol("test"), "peer", 0)
	var got []string
	for _, tag := range []string{"a", "b", "c", "d"} {
		result := "stored"
		_, err := w.Ingest(context.Background(), 1, func() error {
			err := put(w, "m", tag, 1)
			var f *ingest.Fault
			if errors.As(err, &f) {
				result = f.Reason.String()
				return nil
			}
			return err
		})
		if err != nil {
			result = "failed"
		}
		got = append(got, result)
	}
	if want := []string{"failed", "stored", "stored", "new_series_rate"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A lockedText collects the text of a log that several goroutines write.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// take returns the text written since the last call.
func (l *lockedText) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

// What was stored counts against samples_per_second, of all protocols together.
func TestSamplesPerSecond(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	p, _ := ingesttest.NewPipelineAt(&ingesttest.Recorder{}, func(c *ingest.Config) { c.SamplesPerSecond = 1 }, func() time.Time { return now })
	send := func(protocol string) error {
		w := p.NewWriter(p.Protocol(protocol), "peer", time.Millisecond)
		_, err := w.Ingest(t.Context(), 1, func() error { return put(w, "m", "a", 1) })
		return err
	}
	var limit *store.LimitError
	for range 3 { // two are one more than a second holds
		if err := send("a"); errors.As(err, &limit) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if limit == nil {
		t.Fatal("three samples in a second, and no limit")
	}
	if err := send("b"); !errors.As(err, &limit) || !store.Passes(err) {
		t.Errorf("another protocol: %v", err)
	}
	now = now.Add(3 * time.Second)
	if err := send("b"); err != nil {
		t.Errorf("later: %v", err)
	}
	p.SetSampleRate(0)
	for range 10 {
		if err := send("a"); err != nil {
			t.Fatal(err)
		}
	}
}
