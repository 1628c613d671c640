package rollup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/ingest"
	"varve/internal/kairos/agg"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/store/reference"
	"varve/internal/store/storetest"
)

// A deleter counts deletes. With err set it opens no view.
type deleter struct {
	Store
	deletes int
	err     error // of View
}

func (d *deleter) Delete(ctx context.Context, deletions ...store.Deletion) error {
	d.deletes += len(deletions)
	return d.Store.Delete(ctx, deletions...)
}

func (d *deleter) View(ctx context.Context) (store.View, error) {
	if d.err != nil {
		return nil, d.err
	}
	return d.Store.View(ctx)
}

// Results are deleted only if an earlier run has stored whole numbers, and a failure to
// look for them fails the run.
func TestDeletesOnlyOutdatedResults(t *testing.T) {
	h := newHarness(t)
	d := &deleter{Store: h.store}
	h.scheduler.store = d
	fill := func(hour string, want int) string {
		return h.do(want, "GET", "/api/v1/rollups/backfill/t?startTime=2000-01-01-"+hour+"-00-00-000&endTime=2000-01-01-"+hour+"-59-59-999", "")
	}
	h.do(200, "POST", "/api/v1/rollups", strings.Replace(taskJSON("t", hour, hour, ""), `"sum"`, `"last"`, 1))
	h.put("src", "a", 1, at(0, 1, 0), at(1, 1, 0))
	fill("00", 204) // a long
	h.put("src", "a", 0.5, at(1, 2, 0), at(2, 2, 0))
	fill("01", 204) // a double, and no long of this hour
	if d.deletes != 0 {
		t.Errorf("%d deletes of nothing", d.deletes)
	}
	h.put("src", "a", 0.25, at(0, 2, 0))
	fill("00", 204)
	if d.deletes != 1 {
		t.Errorf("%d deletes of one result", d.deletes)
	}
	h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T00:00 0.25\n{host=a,saved_from=src} 2000-01-01T01:00 0.5")
	d.err = errors.New("no view today")
	if got := fill("01", 500); !strings.Contains(got, "no view today") {
		t.Error(got)
	}
}

// Results of every kind are stored, the last one of model.Kind too.
func TestResultsOfEveryKind(t *testing.T) {
	h := newHarness(t)
	o := &output{scheduler: h.scheduler, writer: h.pipeline.NewWriter(h.scheduler.protocol, "", 0), metric: "dst", source: "src"}
	o.begin(model.AllTime)
	g := o.newGroup(&agg.Group{Type: "acme"})
	for k := model.Long; k <= model.Custom; k++ {
		if k == model.Null {
			continue
		}
		data := []byte("text")
		if k == model.Complex {
			data = make([]byte, 16)
		}
		g.points = append(g.points, agg.Point{TimeMS: int64(k), Kind: k, Data: data})
		o.held++
	}
	o.groups = append(o.groups, g)
	if err := o.flush(t.Context()); err != nil || o.stored != int64(model.Custom-model.Long) {
		t.Fatal(o.stored, err)
	}
	view, err := h.store.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	series, err := storetest.Select(t.Context(), view, store.Selection{Metric: "dst", Range: model.AllTime})
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, s := range series {
		types = append(types, string(s.Type))
	}
	if got := strings.Join(types, " "); got != "acme kairos_complex kairos_double kairos_string" { // the long is a double beside one
		t.Errorf("types %s", got)
	}
}

// onePoint is a stream of one point.
type onePoint struct{ done bool }

func (s *onePoint) Next(p *agg.Point) (bool, error) {
	first := !s.done
	s.done = true
	*p = agg.Point{TimeMS: 1, Kind: model.Long, Bits: 1}
	return first, nil
}

// Results with long names are stored a few at a time.
func TestResultsWithLongNames(t *testing.T) {
	h := newHarness(t)
	o := &output{scheduler: h.scheduler, writer: h.pipeline.NewWriter(h.scheduler.protocol, "", 0), metric: "dst", source: "src"}
	o.begin(model.AllTime)
	const groups, length = 500, 4000
	for i := range groups {
		by := &agg.TagGroupBy{Tags: []string{"a", "b"}}
		g := &agg.Group{Points: &onePoint{}, Labels: []agg.Label{{By: by, Tags: []string{fmt.Sprint(i, strings.Repeat("x", length)), "b"}}}}
		if err := o.add(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		if n := len(o.groups) * length; n > ingest.BlockBytes+length {
			t.Fatalf("results with names of %d bytes are held", n)
		}
	}
	if err := o.flush(t.Context()); err != nil || o.stored != groups || h.store.SeriesCount() != groups {
		t.Fatal(o.stored, h.store.SeriesCount(), err)
	}
}

// Once another server may run the task, nothing is stored or deleted, and the run
// fails: otherwise it would count buckets without results as computed.
func TestResultsOfAnotherServer(t *testing.T) {
	h := newHarness(t)
	d := &deleter{Store: h.store}
	h.scheduler.store = d
	owned := true
	o := &output{
		scheduler: h.scheduler, writer: h.pipeline.NewWriter(h.scheduler.protocol, "", 0), metric: "dst", source: "src",
		owned: func() bool { return owned },
	}
	result := func(kind model.Kind) {
		g := o.newGroup(&agg.Group{})
		g.points = append(g.points, agg.Point{TimeMS: 1, Kind: kind})
		o.begin(model.AllTime)
		o.hold(g)
		o.held++
	}
	result(model.Long)
	if err := o.flush(t.Context()); err != nil || o.stored != 1 {
		t.Fatal(o.stored, err)
	}
	owned = false
	result(model.Double) // takes the place of the long
	if err := o.flush(t.Context()); !errors.Is(err, errElsewhere) || o.stored != 1 || d.deletes != 0 {
		t.Errorf("%d results stored, %d deleted, %v", o.stored, d.deletes, err)
	}
}

// A picky store refuses doubles that are not finite, as Cassandra's does.
type picky struct{ *reference.Store }

func (picky) CheckSample(_ store.Ref, k model.Kind, _ int64, bits uint64, _ []byte, _ uint32) error {
	if v := math.Float64frombits(bits); k == model.Double && (math.IsNaN(v) || math.IsInf(v, 0)) {
		return &store.InputError{Reason: "the value is not finite"}
	}
	return nil
}

// A result that the store refuses is counted. All other results are stored, in its
// bucket and later.
func TestRefusedResultsCostNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.front = picky{h.store}
		h.restart(nil)
		h.start()
		defer h.stop()
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", hour, hour, ""))
		h.put("src", "a", math.MaxFloat64, at(0, 1, 0), at(0, 2, 0))
		h.put("src", "b", 0.5, at(0, 1, 0), at(1, 1, 0))
		time.Sleep(2*time.Hour + time.Second)
		h.wantPoints("dst", "{host=b,saved_from=src} 2000-01-01T00:00 0.5\n{host=b,saved_from=src} 2000-01-01T01:00 0.5")
		if m := h.status("t").Statuses[0]; m.ErrorMessage != "" || *m.Watermark != at(2, 0, 0) {
			t.Errorf("the status is %+v", m)
		}
		if got, _ := h.pipeline.Rejected(); len(got) == 0 || got[0].Reason != "refused" || got[0].Protocol != "rollup" {
			t.Errorf("rejected are %+v", got)
		}
	})
}

// The status of a task tells of a failed run what a client is told whose query fails so.
func TestErrorText(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("read: %w", &fault{messages: []string{"a", "b"}}), "a; b"},
		{&store.LimitError{Limit: "query.max_series", Max: 1}, "limit query.max_series of 1 reached"},
		{fmt.Errorf("read: %w", context.DeadlineExceeded), "the store did not answer in time"},
		{errors.New(strings.Repeat("x", 10_000)), strings.Repeat("x", 2000) + "..."},
	} {
		if got := errorText(tc.err); got != tc.want {
			t.Errorf("%.100v: %q, want %q", tc.err, got, tc.want)
		}
	}
}

// texts is a stream of texts that does not end before a number of them.
type texts struct{ n, most, bytes int }

func (s *texts) Next(p *agg.Point) (bool, error) {
	s.n++
	*p = agg.Point{TimeMS: int64(s.n), Kind: model.String, Data: []byte(strings.Repeat("x", s.bytes))}
	return s.n <= s.most, nil
}

// Long texts are stored a few at a time, of one group and of many.
func TestResultsWithLongTexts(t *testing.T) {
	h := newHarness(t)
	o := &output{scheduler: h.scheduler, writer: h.pipeline.NewWriter(h.scheduler.protocol, "", 0), metric: "dst", source: "src"}
	o.begin(model.AllTime)
	const long, many = 50_000, 100
	for i := range many {
		by := &agg.TagGroupBy{Tags: []string{"a"}}
		n := 1
		if i == 0 {
			n = many
		}
		g := &agg.Group{Points: &texts{most: n, bytes: long}, Labels: []agg.Label{{By: by, Tags: []string{fmt.Sprint(i)}}}}
		if err := o.add(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		held := 0
		for _, g := range o.groups {
			for _, p := range g.points {
				held += len(p.Data)
			}
		}
		if held > ingest.BlockBytes {
			t.Fatalf("texts of %d bytes are held", held)
		}
	}
	if err := o.flush(t.Context()); err != nil || o.stored != 2*many-1 {
		t.Fatal(o.stored, err)
	}
}
