package remove

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/write"
	"varve/internal/cassandra/layout"
	"varve/internal/model"
	"varve/internal/store"
)

// What is recorded of a deletion is that deletion, and text that nobody has
// recorded is an error.
func TestRecordedDeletion(t *testing.T) {
	pattern, err := model.NewPattern("a.*")
	if err != nil {
		t.Fatal(err)
	}
	one := keyspacetest.LongSeries("m", "k", "v")
	for _, del := range []store.Deletion{
		{Metric: "m", Range: model.AllTime},
		{Metric: "m", Range: model.TimeRange{StartMS: -5, EndMS: 7}, Matchers: []model.Matcher{{Tag: "k", Values: []string{"v"}, Patterns: []*model.Pattern{pattern}}}},
		store.DeletionOf(one, model.TimeRange{StartMS: 1, EndMS: 2}),
	} {
		value, err := json.Marshal(recordedDeletion{del.Range.StartMS, del.Range.EndMS, layout.SaveDeletion(del)})
		if err != nil {
			t.Fatal(err)
		}
		stampMS, got, err := parseRecord("0000018bcfe568ff-ABC", string(value))
		if err != nil || stampMS != 0x18bcfe568ff || got.Metric != del.Metric || got.Range != del.Range || describe(got) != describe(del) {
			t.Errorf("%d, %v, %v; want %v", stampMS, describe(got), err, describe(del))
		}
		if (got.Only == nil) != (del.Only == nil) || got.Only != nil && *got.Only != *del.Only {
			t.Errorf("of one series: %v, want %v", got.Only, del.Only)
		}
	}
	for key, value := range map[string]string{"x-1": `{"deletion":{"metric":"m"}}`, "0001-1": `{}`, "0002-1": `[`, "": ``,
		"0003-1": `{"deletion":{"metric":"m","matchers":[{"tag":"t","patterns":["("]}]}}`} {
		if _, del, err := parseRecord(key, value); err == nil {
			t.Errorf("%s %s: %v", key, value, del)
		}
	}
}

// Many deletions are recorded by few statements, and large ones one by one. All come back, in pages that
// do not become long.
func TestRecordManyDeletions(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	d := b.deleter(noNodes(), time.Now)
	var deletions []store.Deletion
	want := map[string]bool{}
	for i := range 1000 {
		del := store.Deletion{Metric: fmt.Sprintf("%s%d", b.Name("m"), i), Range: model.AllTime}
		if i%100 == 0 {
			del.Matchers = []model.Matcher{{Tag: "k", Values: []string{strings.Repeat("v", recordsTogether)}}}
		}
		deletions, want[del.Metric] = append(deletions, del), true
	}
	stampMS := time.Now().UnixMilli()
	b.Counts.Take()
	if err := d.Record(b.Ctx, stampMS, deletions...); err != nil {
		t.Fatal(err)
	}
	if n := b.Counts.Take()["record_deletion"]; n > 50 {
		t.Errorf("%d statements", n)
	}
	if err := d.Recorded(b.Ctx, stampMS, func(of int64, del store.Deletion) error {
		if of == stampMS {
			delete(want, del.Metric)
		}
		return nil
	}); err != nil || len(want) > 0 {
		t.Errorf("%d deletions are not found: %v", len(want), err)
	}
}

// A record is not much longer than the values of the request, whatever characters they have: a page has room for
// rows of recordBytes.
func TestRecordOfMarkup(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	d := b.deleter(noNodes(), time.Now)
	del := store.Deletion{Metric: b.Name("m"), Range: model.AllTime, Matchers: []model.Matcher{{Tag: "k", Values: []string{strings.Repeat("<&>", 20_000)}}}}
	stampMS := time.Now().UnixMilli()
	if err := d.Record(b.Ctx, stampMS, del); err != nil {
		t.Fatal(err)
	}
	job := &layout.Job{ID: b.Name("job"), StampMS: stampMS, StartMS: del.Range.StartMS, EndMS: del.Range.EndMS, Deletion: layout.SaveDeletion(del)}
	if err := d.jobs.save(b.Ctx, job); err != nil {
		t.Fatal(err)
	}
	for service, prefix := range map[string]string{hourKey(stampMS): fmt.Sprintf("%016x", stampMS), jobServiceKey: job.ID} {
		for key, err := range b.KS.Keys(b.Ctx, schema.OwnService, service, prefix) {
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(key, prefix) {
				continue
			}
			if v, err := b.KS.Get(b.Ctx, schema.OwnService, service, key); err != nil || len(v.Text) > 61_000 {
				t.Errorf("%s: %d bytes, %v", service, len(v.Text), err)
			}
		}
	}
	found := func() (n int) {
		if err := d.Recorded(b.Ctx, stampMS, func(_ int64, got store.Deletion) error {
			if got.Metric == del.Metric && reflect.DeepEqual(got.Matchers, del.Matchers) {
				n++
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		return n
	}
	if n := found(); n != 1 {
		t.Errorf("%d records, want 1", n)
	}
	if err := d.withdraw(b.Ctx, job); err != nil || found() != 0 {
		t.Errorf("%d records are left of a cancelled job, %v", found(), err)
	}
	if err := d.jobs.unset(b.Ctx, jobServiceKey, job.ID); err != nil {
		t.Error(err)
	}
}
