package embedded

import (
	"slices"
	"testing"

	"varve/internal/model"
	"varve/internal/store"
)

// TestStagesAreNoted: a cursor tells which stages it has read, and of which time,
// regardless of its order and form.
func TestStagesAreNoted(t *testing.T) {
	f := newFoldTest(t, "1s:10m,60s:2h,600s:10d")
	now := model.Floor(f.nowMS.Load(), foldWindow)
	f.nowMS.Store(now)
	var times []int64
	for ms := now - 4*3_600_000; ms < now; ms += 10_000 {
		times = append(times, ms)
	}
	f.write("thin", model.TypeLong, times...)
	f.must(t, f.Compact(f.Context()))
	f.foldAll()
	summary := &store.Summary{Final: func(ms int64) int64 { return model.Floor(ms, foldWindow) + foldWindow - 1 }, Needs: model.StatSum}
	raw := store.StageUse{FirstMS: now - 600_000, LastMS: now - 10_000, Count: 60}
	minutes := store.StageUse{StepMS: 60_000, FirstMS: now - 7_200_000, LastMS: now - 600_001, Count: 110}
	tens := store.StageUse{StepMS: 600_000, FirstMS: now - 4*3_600_000, LastMS: now - 7_200_001, Count: 12}
	for _, c := range []struct {
		name string
		o    store.ReadOptions
		want []store.StageUse
	}{
		{"all", store.ReadOptions{Range: model.AllTime}, []store.StageUse{raw, minutes, tens}},
		{"descending", store.ReadOptions{Range: model.AllTime, Descending: true}, []store.StageUse{raw, minutes, tens}},
		{"statistics", store.ReadOptions{Range: model.AllTime, Summarize: summary}, []store.StageUse{raw, minutes, tens}},
		{"samples", store.ReadOptions{Range: model.AllTime, Buckets: store.WithoutBuckets}, []store.StageUse{raw}},
		{"buckets", store.ReadOptions{Range: model.AllTime, Buckets: store.BucketsOnly, Needs: model.AllStats}, []store.StageUse{minutes, tens}},
		{"young", store.ReadOptions{Range: model.TimeRange{StartMS: now - 600_000, EndMS: now}}, []store.StageUse{raw}},
	} {
		var log store.StageLog
		c.o.Stages = &log
		f.find("thin "+string(model.TypeLong), c.o)
		if got := log.Used(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
