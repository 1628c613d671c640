package kairos

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"varve/internal/ingest"
	"varve/internal/kairos/agg"
	"varve/internal/model"
	"varve/internal/store"
)

// A saver writes the points of save_as through the same pipeline as all input, so that
// the same limits apply. Counters and refused inputs show it as protocol save_as.
type saver struct {
	pipeline *ingest.Pipeline
	protocol *ingest.Protocol
}

// NewSaver returns the Saver of an Engine.
func NewSaver(p *ingest.Pipeline) agg.Saver {
	return &saver{pipeline: p, protocol: p.Protocol("save_as")}
}

// Save stores all points or none. It skips points that have already expired, and counts
// them.
func (s *saver) Save(ctx context.Context, to agg.Target, points []agg.Point) error {
	w := s.pipeline.NewWriter(s.protocol, to.Client, s.pipeline.Config().StoreWait)
	head, tail := []byte(to.Metric), model.AppendTags(nil, to.Tags)
	_, err := w.Ingest(ctx, len(points), func() error {
		for i := range points {
			if err := s.add(w, &to, head, tail, &points[i]); err != nil {
				return err
			}
		}
		return nil
	})
	refused, ok := errors.AsType[*ingest.Fault](err)
	if !ok {
		return err
	}
	s.pipeline.Reject(s.protocol, to.Client, refused, []byte(to.Metric), len(points))
	limit, ok := errors.AsType[*store.LimitError](err)
	switch {
	case !ok:
		return &store.InputError{Reason: refused.Text}
	case refused.Reason == ingest.NewSeriesRate:
		passing := *limit
		passing.Wait = max(time.Millisecond, s.pipeline.NewSeriesIn(1))
		return &passing
	}
	return err
}

// add adds a point to the batch. head and tail are the two parts of the target's key.
func (s *saver) add(w *ingest.Writer, to *agg.Target, head, tail []byte, p *agg.Point) error {
	series := w.Find(p.Kind, head, tail)
	if series == nil {
		if model.TypeOf(p.Kind) == "" {
			return ingest.Faultf(ingest.BadType, "a value of a type that Varve does not know cannot be saved")
		}
		var err error
		series, err = w.Resolve(p.Kind, head, tail, &ingest.Names{Metric: to.Metric, Tags: to.Tags})
		if err != nil {
			return err
		}
	}
	var refused *ingest.Fault
	switch p.Kind {
	case model.Long:
		refused = w.AddLong(series.Ref, p.TimeMS, int64(p.Bits), to.TTL)
	case model.Double:
		v := math.Float64frombits(p.Bits)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return ingest.Faultf(ingest.NotFinite, "value %s at %d is not a finite number", strconv.FormatFloat(v, 'g', -1, 64), p.TimeMS)
		}
		refused = w.AddDouble(series.Ref, p.TimeMS, v, to.TTL)
	case model.Null:
		refused = w.AddNull(series.Ref, p.TimeMS, to.TTL)
	default:
		refused = w.AddBytes(p.Kind, series.Ref, p.TimeMS, p.Data, to.TTL)
	}
	if refused != nil { // already expired: the others are saved
		w.Reject(refused, head)
	}
	return nil
}
