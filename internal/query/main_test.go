package query

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"varve/internal/model"
	"varve/internal/principal"
	"varve/internal/store"
	"varve/internal/store/reference"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fixture is an engine over a reference store.
type fixture struct {
	testing.TB
	*Engine
	store *reference.Store
}

func newFixture(t testing.TB, config Config) *fixture {
	s := reference.New(nil)
	t.Cleanup(func() { s.Close() })
	f := fixtureOver(t, s, config)
	f.store = s
	return f
}

// fixtureOver is a fixture over another store, which it cannot put samples into.
func fixtureOver(t testing.TB, s store.Viewer, config Config) *fixture {
	return &fixture{TB: t, Engine: New(s, config, prometheus.NewRegistry(), time.Now)}
}

// sample is a time and a value: int is long, float64 double, string text, nil
// null.
type sample struct {
	ms    int64
	value any
}

// put stores samples of one metric and tag set.
func (f *fixture) put(metric string, tags model.Tags, samples ...sample) {
	f.Helper()
	var b store.Batch
	b.Reset(f.store.Epoch())
	ref := func(t model.Type) store.Ref {
		r, err := f.store.Create(context.Background(), model.Series{Metric: metric, Tags: tags, Type: t})
		if err != nil {
			f.Fatal(err)
		}
		return r
	}
	for _, s := range samples {
		switch v := s.value.(type) {
		case int:
			b.AddLong(ref(model.TypeLong), s.ms, int64(v), 0)
		case float64:
			b.AddDouble(ref(model.TypeDouble), s.ms, v, 0)
		case string:
			b.AddBytes(ref(model.TypeString), s.ms, []byte(v), 0)
		case nil:
			b.AddNull(ref(model.TypeNull), s.ms, 0)
		}
	}
	if err := f.store.Append(context.Background(), &b); err != nil {
		f.Fatal(err)
	}
}

// counted returns the value of a counter.
func counted(t testing.TB, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.Counter.GetValue()
}

// take takes n bytes for an answer to client, which would have held bytes in all.
func (f *fixture) take(ctx context.Context, client string, n, held int64) error {
	return f.pool.acquire(ctx, want{bytes: n, held: held, sender: principal.NetworkOf(client)})
}

// takeFor is take for the answer of a query that computes.
func (f *fixture) takeFor(s *Session, n, held int64) error {
	return s.lendFor(want{bytes: n, held: held, session: s.id, sender: s.budget.sender})
}

func (f *fixture) give(client string, n int64) { f.pool.release(principal.NetworkOf(client), n) }
