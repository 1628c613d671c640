package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/store"
)

// An observer writes down what it is told.
type observer struct {
	told   []string
	refuse error
}

func (o *observer) Resolved(_ uint64, _ store.Ref, metric string) {
	o.told = append(o.told, "resolved "+metric)
}

func (o *observer) Appending(_ context.Context, b *store.Batch) (func(), error) {
	o.told = append(o.told, fmt.Sprintf("appending %d", len(b.Samples)))
	return func() { o.told = append(o.told, "done") }, o.refuse
}

// An observer learns of each series before its samples, and of series that were
// known before it came.
func TestObserver(t *testing.T) {
	r := &ingesttest.Recorder{}
	p, _ := ingesttest.NewPipeline(r, nil)
	w := p.NewWriter(p.Protocol("test"), "peer", 0)
	one := func(metric string) error {
		_, err := w.Ingest(context.Background(), 1, func() error { return put(w, metric, "a", 1) })
		return err
	}
	if err := one("known"); err != nil {
		t.Fatal(err)
	}
	o := &observer{}
	p.Observe(o)
	for _, metric := range []string{"known", "known", "new"} {
		if err := one(metric); err != nil {
			t.Fatal(err)
		}
	}
	p.ForgetAliases()
	if err := one("new"); err != nil {
		t.Fatal(err)
	}
	o.refuse = errors.New("no")
	if err := one("new"); !errors.Is(err, o.refuse) {
		t.Error(err)
	}
	want := []string{
		"resolved known", "appending 1", "done", "appending 1", "done", "resolved new", "appending 1", "done",
		"resolved new", "appending 1", "done", "appending 1",
	}
	if diff := cmp.Diff(want, o.told); diff != "" {
		t.Error(diff)
	}
	var _ ingest.Observer = o
}

// All observers are told, in the order in which they came. If one refuses a batch, it ends
// for those that were asked before, the others do not learn of it, and nothing is stored.
func TestObservers(t *testing.T) {
	r := &ingesttest.Recorder{}
	p, _ := ingesttest.NewPipeline(r, nil)
	w := p.NewWriter(p.Protocol("test"), "peer", 0)
	one := func() error {
		_, err := w.Ingest(context.Background(), 1, func() error { return put(w, "m", "a", 1) })
		return err
	}
	var all [3]*observer
	for i := range all {
		all[i] = &observer{}
		p.Observe(all[i])
	}
	if err := one(); err != nil {
		t.Fatal(err)
	}
	all[1].refuse = errors.New("no")
	if err := one(); !errors.Is(err, all[1].refuse) {
		t.Error(err)
	}
	told := []string{"resolved m", "appending 1", "done"}
	want := [3][]string{append(slices.Clone(told), "appending 1", "done"), append(slices.Clone(told), "appending 1"), told}
	for i, o := range all {
		if diff := cmp.Diff(want[i], o.told); diff != "" {
			t.Errorf("observer %d: %s", i, diff)
		}
	}
	if stored, _ := r.Count(); stored != 1 {
		t.Errorf("%d samples were stored, want the first one", stored)
	}
}
