package embedded

import (
	"sync"

	"varve/internal/model"
	"varve/internal/retention"
	"varve/internal/store"
)

// policies caches the policy of each series that was looked up, because matching the
// patterns of rules takes long.
type policies struct {
	shelf   *retention.Shelf // nil = there are none
	unknown bool             // see Options.RulesUnknown

	mu   sync.RWMutex
	book *retention.Book    // from which byID is
	byID []retention.Policy // without an Aggregation: not known
}

// book returns the rules in force, nil if there are none.
func (s *Store) book() *retention.Book {
	if s.policies.shelf == nil {
		return nil
	}
	return s.policies.shelf.Book()
}

// policyOf returns the policy of a series, whose Rule is nil if its samples stay as they
// are.
func (s *Store) policyOf(id model.SeriesNumber) retention.Policy {
	book := s.book()
	if book == nil || len(book.Rules) == 0 {
		return retention.Policy{}
	}
	if p := s.policies.known(book, id); p.Aggregation != nil {
		return p
	}
	series, ok := s.series.Series(id)
	if !ok {
		return retention.Policy{} // forgotten
	}
	p := book.Of(retention.SeriesOf(series.Metric, series.Tags))
	s.policies.learn(book, id, p)
	return p
}

func (p *policies) known(book *retention.Book, id model.SeriesNumber) (known retention.Policy) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.book != book || int(id) >= len(p.byID) {
		return known
	}
	return p.byID[id]
}

// policiesGrown is by how many series the list grows at once.
const policiesGrown = 1024

func (p *policies) learn(book *retention.Book, id model.SeriesNumber, one retention.Policy) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.book != book {
		p.book, p.byID = book, nil
	}
	if n := int(id) + 1 - len(p.byID); n > 0 {
		p.byID = append(p.byID, make([]retention.Policy, max(n, policiesGrown))...)
	}
	p.byID[id] = one
}

// forget makes room for other series under the same ids.
func (p *policies) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byID = nil
}

// keptRange returns r without the time before the last stage of a policy.
func keptRange(p retention.Policy, r model.TimeRange, nowMS int64) model.TimeRange {
	if p.Rule != nil {
		r.StartMS = max(r.StartMS, p.Rule.Stages.OldestMS(nowMS))
	}
	return r
}

// KeptFromMS returns the time before which the policy of a series keeps nothing, math.MinInt64 if it
// keeps all data.
func (s *Store) KeptFromMS(ref store.Ref) int64 {
	return keptRange(s.policyOf(model.SeriesNumber(ref)), model.AllTime, s.now().UnixMilli()).StartMS
}

// AllKeptFromMS returns the latest time that KeptFromMS may return.
func (s *Store) AllKeptFromMS() int64 {
	from, book := model.AllTime.StartMS, s.book()
	if book == nil {
		return from
	}
	nowMS := s.now().UnixMilli()
	for i := range book.Rules {
		if stages := book.Rules[i].Stages; len(stages) > 0 {
			from = max(from, stages.OldestMS(nowMS))
		}
	}
	return from
}

// WidestBucket returns the step of the widest bucket that may cover a part of r, 0 if none
// does.
func (s *Store) WidestBucket(r model.TimeRange) (step int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.current.buckets {
		return 0
	}
	for _, f := range s.current.files {
		if f.StepMS == 0 {
			continue
		}
		if covers := f.Range(); covers.StartMS <= r.EndMS && r.StartMS-covers.EndMS < f.StepMS {
			step = max(step, f.StepMS)
		}
	}
	return step
}
