package rollup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sort"
	"strings"
	"time"

	"varve/internal/failure"
	"varve/internal/ingest"
	"varve/internal/kairos/agg"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/work"
)

// savedFrom is the tag with the metric that a point was computed from.
const savedFrom = "saved_from"

// An output stores the results of queries as points of one metric. It holds at most
// ingest.BlockSamples of them, and ingest.BlockBytes of names and texts.
type output struct {
	scheduler *Scheduler
	writer    *ingest.Writer
	metric    string
	source    string
	ttl       uint32
	within    model.TimeRange   // times of the batch's results; others are dropped
	coarse    []model.TimeRange // ascending times of results whose points were downsampled: earlier results stay

	// bucketOf returns the times that results may have in the bucket of a given result.
	// It is nil if a bucket may have several results.
	bucketOf func(ms int64) model.TimeRange

	// owned reports whether this node still runs the task. nil: no other node can run
	// it, or the results are stored whichever node runs it.
	owned func() bool

	renewal *renewal // nil: no earlier results were downsampled

	groups    []*outputGroup
	held      int // points in groups
	heldBytes int // of the names of groups, and of the texts of their points
	stored    int64

	unnamed int64         // results that were not stored because the names of their series were refused
	refused int64         // results of the flush whose series were refused
	named   int64         // of these, results whose names were refused; the others met a limit
	why     *ingest.Fault // the fault of the first refused result
	lacking error         // the last limit because of which results of the batch were not stored; nil: none
}

// begin empties the output for the results of a batch. Results outside within are
// dropped.
func (o *output) begin(within model.TimeRange) {
	o.lacking = nil
	o.groups, o.held, o.heldBytes, o.within = o.groups[:0], 0, 0, within
}

// An outputGroup is a group of the query's result, or a part of it.
type outputGroup struct {
	custom model.Type // of points of kind Custom
	names  ingest.Names
	points []agg.Point

	refused map[int64]bool // times of points that were refused; nil: none
}

// newGroup begins a group of the result.
func (o *output) newGroup(g *agg.Group) *outputGroup {
	out := &outputGroup{custom: model.Type(g.Type)}
	out.names.Metric = o.metric
	out.names.Tags = append(out.names.Tags, model.Tag{Name: savedFrom, Value: o.source})
	for _, l := range g.Labels {
		by, ok := l.By.(*agg.TagGroupBy)
		if !ok {
			continue
		}
		for i, name := range by.Tags {
			if name != savedFrom && l.Tags[i] != "" {
				out.names.Tags = append(out.names.Tags, model.Tag{Name: name, Value: l.Tags[i]})
			}
		}
	}
	return out
}

// add stores all points of a group of the result.
func (o *output) add(ctx context.Context, g *agg.Group) error {
	if o.renewal != nil {
		if tags, err := model.NewTags(o.newGroup(g).names.Tags...); err == nil { // else the pipeline refuses it
			return o.addRenewed(ctx, g, tags)
		}
	}
	return o.addOutside(ctx, g, nil)
}

// addOutside stores the points of a group that are outside all spans. The downsampled results in
// the spans stay.
func (o *output) addOutside(ctx context.Context, g *agg.Group, spans []downsampledSpan) error {
	group := o.newGroup(g)
	o.hold(group)
	var p agg.Point
	for {
		ok, err := g.Points.Next(&p)
		if err != nil || !ok {
			return err
		}
		if o.leavesOut(&p) {
			continue
		}
		if spanAt(spans, p.TimeMS) != nil {
			o.scheduler.metrics.kept.Inc()
			continue
		}
		p.Data = append([]byte(nil), p.Data...)
		if err := o.addPoint(ctx, group, p); err != nil {
			return err
		}
	}
}

// addPoint adds a point to a held group. At the maximum number of points, it stores all held points.
func (o *output) addPoint(ctx context.Context, group *outputGroup, p agg.Point) error {
	group.points = append(group.points, p)
	o.heldBytes += len(p.Data)
	if o.held++; !o.full() {
		return nil
	}
	if err := o.flush(ctx); err != nil {
		return err
	}
	group.points = group.points[:0]
	o.hold(group)
	return nil
}

// leavesOut reports whether a point is not a result of the batch, or must not be stored.
func (o *output) leavesOut(p *agg.Point) bool {
	if p.Kind == model.Null || !o.within.Contains(p.TimeMS) { // null marks a gap
		return true
	}
	i := sort.Search(len(o.coarse), func(i int) bool { return o.coarse[i].EndMS >= p.TimeMS })
	if i == len(o.coarse) || o.coarse[i].StartMS > p.TimeMS {
		return false
	}
	o.scheduler.metrics.kept.Inc()
	return true
}

// full reports whether enough is held for a flush.
func (o *output) full() bool {
	return o.held == ingest.BlockSamples || o.heldBytes >= ingest.BlockBytes
}

// hold adds a group to those that the next flush stores.
func (o *output) hold(g *outputGroup) {
	o.groups = append(o.groups, g)
	o.heldBytes += len(g.names.Metric)
	for _, t := range g.names.Tags {
		o.heldBytes += len(t.Name) + len(t.Value)
	}
}

// errElsewhere ends a run of a task that another node may run by now. This run's
// results may lack samples that the other node has already read.
var errElsewhere = errors.New("this server was suspended or could not renew its entry in the list of servers; another one may run the task by now, so nothing is stored")

// flush stores what is held, and then deletes the results that it replaces, so that a
// bucket has a result even if the flush is interrupted.
func (o *output) flush(ctx context.Context) error {
	replaced, err := o.replaced(ctx)
	if err != nil {
		return fmt.Errorf("look for earlier results in %s: %w", o.metric, err)
	}
	if o.owned != nil && !o.owned() {
		return errElsewhere
	}
	if len(replaced) > 0 { // a task that reads the results must not read both the old and the new one
		defer o.scheduler.late.Pause(o.metric)()
	}
	if err := o.write(ctx); err != nil {
		return err
	}
	if err := o.replace(ctx, replaced); err != nil {
		return fmt.Errorf("delete outdated results in %s: %w", o.metric, err)
	}
	o.groups, o.held, o.heldBytes = o.groups[:0], 0, 0
	return nil
}

func (o *output) write(ctx context.Context) error {
	for {
		n, err := o.writer.Ingest(ctx, o.held, o.fill)
		var fault *ingest.Fault
		if errors.As(err, &fault) && fault.Reason == ingest.NewSeriesRate {
			if err := work.Pause(ctx, 100*time.Millisecond); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("store the results in %s: %w", o.metric, err)
		}
		o.stored += int64(n)
		o.scheduler.metrics.points.Add(float64(n))
		o.unnamed += o.named
		o.scheduler.metrics.refused.Add(float64(o.refused))
		return nil
	}
}

func (o *output) fill() error {
	o.refused, o.named = 0, 0
	for _, g := range o.groups {
		g.refused = nil
		var refs [model.Custom + 1]store.Ref
		var faults [model.Custom + 1]*ingest.Fault
		var known [model.Custom + 1]bool
		for i := range g.points {
			p := &g.points[i]
			typ := g.typeOf(p.Kind)
			if !known[p.Kind] {
				ref, err := o.writer.ResolveTyped(typ, &g.names)
				if err != nil && (!errors.As(err, &faults[p.Kind]) || faults[p.Kind].Reason == ingest.NewSeriesRate) {
					return err
				}
				refs[p.Kind], known[p.Kind] = ref, true
				o.note(faults[p.Kind])
			}
			if f := faults[p.Kind]; f != nil {
				o.writer.Reject(f, []byte(o.metric))
				o.refused++
				if !atLimit(f) {
					o.named++
				}
			} else if o.put(typ, refs[p.Kind], p) {
				continue
			}
			if g.refused == nil {
				g.refused = map[int64]bool{}
			}
			g.refused[p.TimeMS] = true
		}
	}
	return nil
}

// note records why a series of results was refused. Only results of this series are lost. A
// later run would have the same names refused again, so the task continues. A limit may be
// raised, so the batch fails once its other results are stored.
func (o *output) note(f *ingest.Fault) {
	switch {
	case f == nil:
	case atLimit(f):
		o.lacking = f
	case o.why == nil:
		o.why = f
	}
}

// atLimit reports whether a series was refused because of a limit, not because
// of its names.
func atLimit(f *ingest.Fault) bool {
	return f.Reason == ingest.MaxSeries || f.Reason == ingest.SeriesMemory
}

// put reports whether a result can be stored. It cannot if it would expire at once, or
// if the store does not support its value: an infinite one in a KairosDB keyspace. The
// task continues, since a retry would compute the same.
func (o *output) put(typ model.Type, ref store.Ref, p *agg.Point) bool {
	var f *ingest.Fault
	switch p.Kind {
	case model.Long:
		f = o.writer.AddLong(ref, p.TimeMS, int64(p.Bits), o.ttl)
	case model.Double:
		f = o.writer.AddDouble(ref, p.TimeMS, math.Float64frombits(p.Bits), o.ttl)
	default:
		f = o.writer.AddValue(typ, ref, p.TimeMS, p.Data, o.ttl)
	}
	if f != nil {
		o.writer.Reject(f, []byte(o.metric))
	}
	return f == nil
}

func (g *outputGroup) typeOf(k model.Kind) model.Type {
	if k == model.Custom {
		return g.custom
	}
	return model.TypeOf(k)
}

// whole returns an error if results of the batch are missing that a later run can store.
func (o *output) whole() error {
	if o.lacking == nil {
		return nil
	}
	return fmt.Errorf("store some of the results in %s: %w; all others are stored", o.metric, o.lacking)
}

// complaint says which results were not stored and will not be, "" if there are none.
func (o *output) complaint() string {
	if o.unnamed == 0 {
		return ""
	}
	return fmt.Sprintf("%d results were not stored in %s, because the names of their series are refused: %s; all others are stored", o.unnamed, o.metric, o.why.Text)
}

// errorText is the text of a failed run in the status: the text that a client gets if its query
// fails.
func errorText(err error) string { return strings.Join(failure.Of(err).Texts, "; ") }
