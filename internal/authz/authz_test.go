package authz

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"varve/internal/model"
	"varve/internal/principal"
	"varve/internal/store"
	"varve/internal/store/reference"
	"varve/internal/store/storetest"
)

// filled returns an authorizing store in which each metric has a sample with the tag t=METRIC.
func filled(t *testing.T, metrics ...string) store.Store {
	t.Helper()
	s := Around(reference.New(nil))
	t.Cleanup(func() { s.Close() })
	var b store.Batch
	b.Reset(s.Epoch())
	for _, m := range metrics {
		ref, err := s.Create(t.Context(), model.Series{Metric: m, Tags: model.MustTags("t", m), Type: model.TypeLong})
		if err != nil {
			t.Fatal(err)
		}
		b.AddLong(ref, 1, 1, 0)
	}
	if err := s.Append(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return s
}

// A limited sender sees of each list what the whole list has of its metrics, page by page as
// at once.
func TestNames(t *testing.T) {
	metrics := strings.Fields("a a.b a.b.c a.b.d a.bc a.c.x b b.c serv servers.a servers.b.c z")
	s := filled(t, metrics...)
	names := func(p principal.Principal, q store.NamesQuery) []string {
		t.Helper()
		ctx := principal.With(t.Context(), p)
		v, err := s.View(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		found, _, err := v.Names(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	limited := func(prefix string) principal.Principal {
		return principal.Principal{Tenant: principal.Default, Rights: principal.Read, Prefix: prefix}
	}
	for _, own := range strings.Fields("a a. a.b a.b. a.b.c b serv servers servers.b none z zz") {
		for _, prefix := range []string{"", "a", "a.", "a.b", "a.b.", "ser", "serv", "servers.", "x", "z"} {
			for _, delimiter := range []byte{0, '.'} {
				q := store.NamesQuery{Prefix: prefix, Delimiter: delimiter}
				var want []string
				for _, m := range metrics {
					if strings.HasPrefix(m, own) && strings.HasPrefix(m, prefix) && !slices.Contains(want, q.Entry(m)) {
						want = append(want, q.Entry(m))
					}
				}
				slices.SortFunc(want, model.CompareNames)
				at := fmt.Sprintf("%s looks below %q by %q", own, prefix, delimiter)
				if got := names(limited(own), q); !slices.Equal(got, want) {
					t.Errorf("%s: %q, want %q", at, got, want)
				}
				var paged []string
				for q.Limit = 1; ; {
					page := names(limited(own), q)
					if len(page) == 0 || len(paged) > len(metrics) {
						break
					}
					paged, q.After = append(paged, page...), page[0]
				}
				if !slices.Equal(paged, want) {
					t.Errorf("%s, page by page: %q, want %q", at, paged, want)
				}
			}
		}
		var want []string
		for _, m := range metrics {
			if strings.HasPrefix(m, own) {
				want = append(want, m)
			}
		}
		if got := names(limited(own), store.NamesQuery{Kind: store.TagValues, Tag: "t"}); !slices.Equal(got, want) {
			t.Errorf("values that %s sees: %q, want %q", own, got, want)
		}
		if got := names(limited(own), store.NamesQuery{Kind: store.TagValues, Metric: "b"}); len(got) > 0 != (own == "b") {
			t.Errorf("values of b that %s sees: %q", own, got)
		}
	}
}

// A limited sender neither makes, reads nor deletes what is not its own, and a deletion of
// which a part is not its own deletes nothing.
func TestForeignMetrics(t *testing.T) {
	s := filled(t, "own.a", "other.a")
	ctx := principal.With(t.Context(), principal.Principal{Tenant: principal.Default, Name: "me", Rights: principal.All, Prefix: "own."})
	v, err := s.View(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	_, selected := storetest.Select(ctx, v, store.Selection{Metric: "other.a", Range: model.AllTime})
	_, created := s.Create(ctx, model.Series{Metric: "other.b", Tags: model.MustTags("t", "x"), Type: model.TypeLong})
	deleted := s.Delete(ctx, store.Deletion{Metric: "own.a", Range: model.AllTime}, store.Deletion{Metric: "other.a", Range: model.AllTime})
	for what, err := range map[string]error{"select": selected, "create": created, "delete": deleted} {
		if forbidden := (*principal.ForbiddenError)(nil); !errors.As(err, &forbidden) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if found, err := storetest.Select(ctx, v, store.Selection{Metric: "own.a", Range: model.AllTime}); err != nil || len(found) != 1 {
		t.Errorf("its own: %v %v", found, err)
	}
	if err := s.Delete(ctx, store.Deletion{Metric: "own.a", Range: model.AllTime}); err != nil {
		t.Error(err)
	}
}

// A selection of several metrics has those that the sender may name, and one of a metric
// of others is refused as ever.
func TestSelectedMetrics(t *testing.T) {
	s := filled(t, strings.Fields("a a.b a.c b b.a z")...)
	ctx := principal.With(t.Context(), principal.Principal{Tenant: principal.Default, Rights: principal.Read, Prefix: "a."})
	v, err := s.View(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for pattern, want := range map[string][]string{".*": {"a.b", "a.c"}, ".*b": {"a.b"}, "b.*": nil} {
		m, err := model.NewMatcher("", model.Matches, pattern)
		if err != nil {
			t.Fatal(err)
		}
		list, err := storetest.Select(ctx, v, store.Selection{Metrics: []model.Matcher{m}, Range: model.AllTime})
		var got []string
		for _, one := range list {
			got = append(got, one.Metric)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", pattern, got, err, want)
		}
	}
	if list, err := storetest.Select(ctx, v, store.Selection{Metrics: []model.Matcher{{Values: []string{"b"}}}, Range: model.AllTime}); err == nil {
		t.Errorf("a metric of others: %v", list)
	}
}
