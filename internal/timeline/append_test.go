package timeline

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A partlyShelf stores all entries of a Put but the first. A delete of it is recorded meanwhile.
type partlyShelf struct {
	deletionsShelf
	meanwhile Deleted
}

func (*partlyShelf) Mark(context.Context, string, []int64, time.Time) error { return nil }

func (*partlyShelf) Marks(context.Context, string, int64, int64, Direction, int) ([]int64, error) {
	return nil, nil
}

func (s *partlyShelf) Put(context.Context, []Placed) error {
	s.all = append(s.all, s.meanwhile)
	return &PutError{Failed: map[int]error{0: errors.New("the node is away")}}
}

// TestEventsThatFailAreNotCounted: only events that were put count as appended. An event that failed
// and was also deleted meanwhile is rejected once, by the failure, so that it is put again.
func TestEventsThatFailAreNotCounted(t *testing.T) {
	s, reg, now := &partlyShelf{}, prometheus.NewRegistry(), time.Now()
	e, err := Open(s, Options{Upkeep: -1, Metric: reg, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var accepted []Accepted
	for _, id := range []string{"a", "b"} {
		event := Event{Time: now.UnixMicro(), ID: id}
		accepted = append(accepted, Accepted{Addressed{event, []string{"t"}}, now})
	}
	p := accepted[0].Position()
	s.meanwhile = Deleted{Range: Range{p, p.Next()}, Before: now.Add(time.Second)}
	r, err := e.AppendAccepted(t.Context(), accepted)
	if err != nil || r.Accepted != 1 || len(r.Rejected) != 1 || r.Rejected[0].Index != 0 || r.Rejected[0].Err.Error() != "the node is away" {
		t.Errorf("%+v, %v", r, err)
	}
	l := e.use("t")
	defer e.release(l)
	if n := l.appended.Load(); n != 1 {
		t.Errorf("%d events of the timeline were appended, want 1", n)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "varve_timeline_events_appended_total" && f.Metric[0].GetCounter().GetValue() != 1 {
			t.Errorf("%v, want 1", f)
		}
	}
}
