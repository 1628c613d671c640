package layout

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"varve/internal/model"
	"varve/internal/store"
)

// States of a Job.
const (
	JobRunning = "running"
	JobWaiting = "waiting" // until this or another node continues it
	JobDone    = "done"
	JobFailed  = "failed" // will be retried

	JobCancelling = "cancelling" // by an operator; the node that works on it has yet to stop
	JobCancelled  = "cancelled"  // no node will continue it; what was deleted stays deleted
)

// A Job is a delete that is too large to wait for.
type Job struct {
	ID       string    `json:"id"`
	Selector string    `json:"selector"`          // for people
	Cluster  string    `json:"cluster,omitempty"` // see Options.Cluster
	StartMS  int64     `json:"start_ms"`
	EndMS    int64     `json:"end_ms"`
	StampMS  int64     `json:"stamp_ms"` // samples written later stay
	State    string    `json:"state"`
	Rows     int       `json:"rows"`    // when it began
	Done     int       `json:"done"`    // rows done so far
	NextMS   int64     `json:"next_ms"` // row times before this are done
	Started  time.Time `json:"started"`
	Updated  time.Time `json:"updated"`
	Node     string    `json:"node"` // the node that works on it, or did last
	Error    string    `json:"error,omitempty"`
	Note     string    `json:"note,omitempty"` // of a cancelled job: what was deleted

	Deletion SavedDeletion `json:"deletion"`
}

// A SavedDeletion is a store.Deletion as it is stored.
type SavedDeletion struct {
	Metric   string         `json:"metric"`
	Matchers []SavedMatcher `json:"matchers,omitempty"`
	Only     *SavedSeries   `json:"only,omitempty"`
}

// A SavedSeries is the series of a deletion of a single series.
type SavedSeries struct {
	Tags map[string]string `json:"tags"`
	Type model.Type        `json:"type"`
}

// A SavedMatcher is a matcher of a SavedDeletion.
type SavedMatcher struct {
	Tag      string   `json:"tag"`
	Values   []string `json:"values,omitempty"`
	Patterns []string `json:"patterns,omitempty"`
	Not      bool     `json:"not,omitempty"`
	Absent   bool     `json:"absent,omitempty"`
}

// SaveDeletion returns a deletion as it is stored. Values are sorted, so that the same deletion is
// always stored as the same text.
func SaveDeletion(del store.Deletion) SavedDeletion {
	s := SavedDeletion{Metric: del.Metric}
	for _, m := range del.Matchers {
		saved := SavedMatcher{Tag: m.Tag, Values: slices.Sorted(slices.Values(m.Values)), Not: m.Not, Absent: m.Absent}
		for _, p := range m.Patterns {
			saved.Patterns = append(saved.Patterns, p.String())
		}
		s.Matchers = append(s.Matchers, saved)
	}
	if del.Only != nil {
		s.Only = &SavedSeries{Tags: maps.Collect(del.Only.Tags.All()), Type: del.Only.Type}
	}
	return s
}

// Means returns the deletion that the job performs.
func (j *Job) Means() (store.Deletion, error) {
	del := store.Deletion{Metric: j.Deletion.Metric, Range: model.TimeRange{StartMS: j.StartMS, EndMS: j.EndMS}}
	for _, s := range j.Deletion.Matchers {
		m := model.Matcher{Tag: s.Tag, Values: s.Values, Not: s.Not, Absent: s.Absent}
		for _, text := range s.Patterns {
			p, err := model.NewPattern(text)
			if err != nil {
				return del, err
			}
			m.Patterns = append(m.Patterns, p)
		}
		del.Matchers = append(del.Matchers, m)
	}
	if s := j.Deletion.Only; s != nil {
		var tags []model.Tag
		for name, value := range s.Tags {
			tags = append(tags, model.Tag{Name: name, Value: value})
		}
		sorted, err := model.NewTags(tags...)
		if err != nil {
			return del, err
		}
		del.Only = &model.Series{Metric: del.Metric, Tags: sorted, Type: s.Type}
	}
	return del, nil
}

// SetCancelled marks the job as cancelled.
func (j *Job) SetCancelled() {
	j.State, j.Error = JobCancelled, ""
	j.Note = fmt.Sprintf("about %d of %d rows were done, and all before the row time %d: what was deleted there stays deleted; the rest is unchanged",
		min(j.Done, j.Rows), j.Rows, j.NextMS)
}
