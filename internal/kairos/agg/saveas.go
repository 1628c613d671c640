package agg

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"varve/internal/clip"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
)

// A Saver stores the points that save_as writes.
type Saver interface {
	// Save stores points of one tag set, each under the type of its kind. Of two points
	// of the same kind and time the later one wins. Save keeps no reference to points.
	// Its errors end the query.
	Save(ctx context.Context, to Target, points []Point) error
}

// A Target is where save_as writes the points of a group.
type Target struct {
	Metric string
	Tags   []model.Tag // by name, each once
	TTL    uint32      // seconds from a point's own time, 0 for ever
	Client string      // the client of the query
}

// saveAsSpec passes its points on and writes them under another name.
var saveAsSpec = AggregatorSpec{
	Name: "save_as", Doc: "Stores the points under another name.",
	Properties: []Property{
		{Name: "metric_name", Kind: TextProperty, Doc: "name of the metric to write"},
		{Name: "tags", Kind: TextMapProperty, Doc: "tags of the stored points", Hidden: true},
		{Name: "ttl", Kind: IntProperty, Doc: "seconds until a point expires; 0 for never", Hidden: true},
		{Name: "add_saved_from", Kind: BoolProperty, Doc: "add the tag saved_from with the name of the source metric", Hidden: true},
	},
	New: newSaveAs,
}

func newSaveAs(a Args) (Step, error) {
	ttl := a.Long("ttl", 0)
	if ttl < 0 || ttl > model.MaxTTL {
		return nil, &ArgumentError{[]string{fmt.Sprintf("ttl must be between 0 and %d", int64(model.MaxTTL))}}
	}
	return &saveStep{
		metric: a.Text("metric_name", ""), tags: a.TextMap("tags"), ttl: uint32(ttl),
		savedFrom: a.Bool("add_saved_from", true),
	}, nil
}

type saveStep struct {
	anyType
	metric    string // "" if not given, an error once there are points
	tags      map[string]string
	ttl       uint32
	savedFrom bool
}

// Saves reports whether the query writes.
func (q *MetricQuery) Saves() bool {
	return slices.ContainsFunc(q.Steps, func(s Step) bool { _, ok := s.(*saveStep); return ok })
}

// SavedTo are the metrics that the query writes.
func (q *MetricQuery) SavedTo() (metrics []string) {
	for _, s := range q.Steps {
		if s, ok := s.(*saveStep); ok {
			metrics = append(metrics, s.metric)
		}
	}
	return metrics
}

func (s *saveStep) Apply(env *Env, in Stream) Stream {
	return &saveStream{in: in, step: s, env: env}
}

// target collects the tags of a group: the given ones, saved_from, and the group-by
// tags that have one value in the group. For a repeated name the error has KairosDB's
// text.
func (s *saveStep) target(env *Env) (Target, error) {
	t := Target{Metric: s.metric, TTL: s.ttl, Client: env.run.query.Client}
	if s.metric == "" {
		return t, &store.InputError{Reason: "save_as: metric_name may not be null or empty"}
	}
	tags := maps.Clone(s.tags)
	if tags == nil {
		tags = map[string]string{}
	}
	add := func(name, value string) error {
		if had, ok := tags[name]; ok {
			return &query.ComputeError{Reason: fmt.Sprintf("Multiple entries with same key: %s=%s and %s=%s", name, had, name, value)}
		}
		tags[name] = value
		return nil
	}
	if s.savedFrom {
		if err := add("saved_from", env.Metric); err != nil {
			return t, err
		}
	}
	for _, tag := range env.Tags {
		if len(tag.Values) != 1 || !env.grouped[tag.Name] {
			continue
		}
		if err := add(tag.Name, tag.Values[0]); err != nil {
			return t, err
		}
	}
	for name, value := range tags {
		t.Tags = append(t.Tags, model.Tag{Name: name, Value: value})
	}
	model.SortTags(t.Tags)
	return t, nil
}

// Limits of the points that a saveStream buffers.
const (
	savePoints = 1024
	saveBytes  = 256 << 10
)

// A saveStream passes points on and writes them in batches. If the query fails, points
// that are not yet written are dropped.
type saveStream struct {
	in     Stream
	step   *saveStep
	env    *Env
	target Target
	points []Point
	data   []byte // bytes of the points' Data
}

func (s *saveStream) Next(p *Point) (bool, error) {
	ok, err := s.in.Next(p)
	if err != nil {
		return false, err
	}
	if !ok {
		return false, s.flush()
	}
	if s.points == nil {
		if err := s.begin(); err != nil {
			return false, err
		}
	}
	own := *p
	if len(p.Data) > 0 {
		from := len(s.data)
		s.data = append(s.data, p.Data...)
		own.Data = s.data[from:]
	}
	if s.points = append(s.points, own); len(s.points) == savePoints || len(s.data) >= saveBytes {
		return true, s.flush()
	}
	return true, nil
}

// begin runs at the first point: without points its errors do not occur, as in
// KairosDB.
func (s *saveStream) begin() (err error) {
	if s.target, err = s.step.target(s.env); err != nil {
		return err
	}
	if s.env.run.engine.saver == nil {
		return &store.UnavailableError{Reason: "save_as: this server cannot write points"}
	}
	const pointSize = 56
	if err := s.env.lease.Take(savePoints*pointSize + saveBytes); err != nil {
		return err
	}
	s.points = make([]Point, 0, savePoints)
	return nil
}

func (s *saveStream) flush() error {
	if len(s.points) == 0 {
		return nil
	}
	run := s.env.run
	if err := run.addSaved(len(s.points)); err != nil {
		return err
	}
	save := func() error { return run.engine.saver.Save(run.Context(), s.target, s.points) }
	if err := run.Wait(save); err != nil { // waits for the disk, or for the tenant's write rate
		return fmt.Errorf("save_as %s: %w", clip.Text(s.target.Metric, clippedBytes), err)
	}
	s.points, s.data = s.points[:0], s.data[:0]
	return nil
}
