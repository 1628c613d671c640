package rollup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"varve/internal/ingest"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
)

// savedFrom is the tag that tells where a point was computed from.
const savedFrom = "saved_from"

// An output stores the results of a query as points of one metric. It holds at
// most ingest.BlockSamples of them, and ingest.BlockBytes of names.
type output struct {
	scheduler *Scheduler
	writer    *ingest.Writer
	metric    string
	source    string
	ttl       uint32
	within    model.TimeRange // of results; others were computed beside the batch
	groups    []*outputGroup
	held      int // points in groups
	heldNames int // bytes of the names of groups
	stored    int64
}

// begin makes room for the results of a batch; those outside of a range are
// dropped.
func (o *output) begin(within model.TimeRange) {
	o.groups, o.held, o.heldNames, o.within = o.groups[:0], 0, 0, within
}

// An outputGroup is a part of a group of the result.
type outputGroup struct {
	custom model.Type // of points of kind Custom
	names  ingest.Names
	exact  bool // no tag of the group-by is missing
	points []query.Point
}

// newGroup begins a group of the result.
func (o *output) newGroup(g *query.Group) *outputGroup {
	out := &outputGroup{custom: model.Type(g.Type), exact: true}
	out.names.Metric = o.metric
	out.names.Tags = append(out.names.Tags, model.Tag{Name: savedFrom, Value: o.source})
	for _, l := range g.Labels {
		by, ok := l.By.(*query.TagGroupBy)
		if !ok {
			continue
		}
		for i, name := range by.Tags {
			switch {
			case l.Tags[i] == "":
				out.exact = false
			case name != savedFrom:
				out.names.Tags = append(out.names.Tags, model.Tag{Name: name, Value: l.Tags[i]})
			}
		}
	}
	return out
}

// add stores all points of a group of the result.
func (o *output) add(ctx context.Context, g *query.Group) error {
	group := o.newGroup(g)
	o.hold(group)
	var p query.Point
	for {
		ok, err := g.Points.Next(&p)
		if err != nil || !ok {
			return err
		}
		if p.Kind == model.Null || p.TimeMS < o.within.StartMS || p.TimeMS > o.within.EndMS { // null: a mark of gaps
			continue
		}
		p.Data = append([]byte(nil), p.Data...)
		group.points = append(group.points, p)
		if o.held++; o.held == ingest.BlockSamples || o.heldNames >= ingest.BlockBytes {
			if err := o.flush(ctx); err != nil {
				return err
			}
			group.points = group.points[:0]
			o.hold(group)
		}
	}
}

// hold adds a group to those that the next flush stores.
func (o *output) hold(g *outputGroup) {
	o.groups = append(o.groups, g)
	o.heldNames += len(g.names.Metric)
	for _, t := range g.names.Tags {
		o.heldNames += len(t.Name) + len(t.Value)
	}
}

// flush stores what is held.
func (o *output) flush(ctx context.Context) error {
	for _, g := range o.groups {
		if err := o.reconcile(ctx, g); err != nil {
			return err
		}
	}
	for {
		n, err := o.writer.Ingest(ctx, o.held, o.fill)
		var fault *ingest.Fault
		if errors.As(err, &fault) && fault.Reason == ingest.NewSeriesRate {
			if err := pause(ctx, 100*time.Millisecond); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("store the results in %s: %w", o.metric, err)
		}
		o.stored += int64(n)
		o.scheduler.metrics.points.Add(float64(n))
		o.groups, o.held, o.heldNames = o.groups[:0], 0, 0
		return nil
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (o *output) fill() error {
	for _, g := range o.groups {
		var refs [model.Custom + 1]store.Ref
		var known [model.Custom + 1]bool
		for i := range g.points {
			p := &g.points[i]
			typ := g.typeOf(p.Kind)
			if !known[p.Kind] {
				ref, err := o.writer.ResolveTyped(typ, &g.names)
				if err != nil {
					return err
				}
				refs[p.Kind], known[p.Kind] = ref, true
			}
			if f := o.put(typ, refs[p.Kind], p); f != nil {
				return f
			}
		}
	}
	return nil
}

func (o *output) put(typ model.Type, ref store.Ref, p *query.Point) error {
	var f *ingest.Fault
	switch p.Kind {
	case model.Long:
		f = o.writer.AddLong(ref, p.TimeMS, int64(p.Bits), o.ttl)
	case model.Double:
		f = o.writer.AddDouble(ref, p.TimeMS, math.Float64frombits(p.Bits), o.ttl)
	default:
		f = o.writer.AddValue(typ, ref, p.TimeMS, p.Data, o.ttl)
	}
	switch {
	case f == nil:
		return nil
	case f.Reason == ingest.Expired, f.Reason == ingest.BadTTL:
		// The result would be gone at once. The task goes on.
		o.writer.Reject(f, []byte(o.metric))
		return nil
	}
	return f
}

func (g *outputGroup) typeOf(k model.Kind) model.Type {
	if k == model.Custom {
		return g.custom
	}
	return model.TypeOf(k)
}

// exactLong is the largest whole number up to which a double holds all.
const exactLong = 1 << 53

// reconcile keeps a bucket from having two results. Longs and doubles of one
// name are two series, and a sum turns from one to the other when the first
// fraction arrives. Where a group has both, whole numbers become doubles as far
// as they are exact, and longs of earlier runs are deleted.
func (o *output) reconcile(ctx context.Context, g *outputGroup) error {
	if len(g.points) == 0 || !g.exact {
		return nil
	}
	longs, doubles := g.known(o.scheduler.store, model.TypeLong), g.known(o.scheduler.store, model.TypeDouble)
	stored := longs
	for i := range g.points {
		longs = longs || g.points[i].Kind == model.Long
		doubles = doubles || g.points[i].Kind == model.Double
	}
	if !longs || !doubles {
		return nil
	}
	within := model.TimeRange{StartMS: g.points[0].TimeMS, EndMS: g.points[0].TimeMS}
	for i := range g.points {
		p := &g.points[i]
		within.StartMS, within.EndMS = min(within.StartMS, p.TimeMS), max(within.EndMS, p.TimeMS)
		if v := int64(p.Bits); p.Kind == model.Long && v >= -exactLong && v <= exactLong {
			p.Kind, p.Bits = model.Double, math.Float64bits(float64(v))
		}
	}
	if !stored {
		return nil
	}
	d := store.Deletion{Metric: o.metric, Range: within}
	for _, t := range g.names.Tags {
		d.Matchers = append(d.Matchers, model.Matcher{Tag: t.Name, Values: []string{t.Value}})
	}
	some, err := o.hasLongs(ctx, d)
	if err != nil || !some {
		return err
	}
	if err := o.scheduler.store.Delete(ctx, d); err != nil {
		return fmt.Errorf("delete outdated results in %s: %w", o.metric, err)
	}
	return nil
}

// known reports whether the store has met the group's series of a type.
func (g *outputGroup) known(s store.Appender, t model.Type) bool {
	tags, err := model.NewTags(g.names.Tags...)
	if err != nil {
		return false // refused when it is stored
	}
	_, ok := s.Lookup(model.Series{Metric: g.names.Metric, Tags: tags, Type: t}.AppendKey(nil))
	return ok
}

// hasLongs reports whether there are whole numbers among what d would delete.
func (o *output) hasLongs(ctx context.Context, d store.Deletion) (some bool, err error) {
	view, err := o.scheduler.store.View(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	series, err := view.Select(ctx, store.Selection{Metric: d.Metric, Matchers: d.Matchers, Range: d.Range})
	if err != nil {
		return false, err
	}
	for _, s := range series {
		if s.Type != model.TypeLong {
			continue
		}
		cursor := view.Read(ctx, s, store.ReadOptions{Range: d.Range, Limit: 1})
		block, err := cursor.Next()
		cursor.Close()
		if err != nil {
			return false, err
		}
		if block != nil && block.Len() > 0 {
			return true, nil
		}
	}
	return false, nil
}

// errorText is what the status says of a failed run.
func errorText(err error) string {
	var told interface{ Messages() []string }
	if errors.As(err, &told) {
		return strings.Join(told.Messages(), "; ")
	}
	return err.Error()
}
