package rollup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
)

// errPanicked is how a query ended whose place only a panic gave back.
var errPanicked = errors.New("a fault in Varve ended the query")

// A pass computes one metric of a roll-up.
type pass struct {
	scheduler *Scheduler
	task      *task
	rollup    *rollup
	index     int // of the metric in the roll-up's query
	request   query.Request
	bucketing *query.Range
	grid      *query.Grid
	sampling  query.Sampling
	zone      *time.Location
	output    output
}

// newPass prepares the computation of the k-th metric of r.
func (s *Scheduler) newPass(t *task, r *rollup, k int) (*pass, error) {
	req, err := s.parser.ParseQuery(r.query)
	if err != nil {
		return nil, err
	}
	if k >= len(req.Metrics) {
		return nil, fmt.Errorf("the query of roll-up %s has %d metrics, not %d", r.saveAs, len(req.Metrics), k+1)
	}
	p := &pass{scheduler: s, task: t, rollup: r, index: k, request: req}
	metric := req.Metrics[k]
	metric.Descending = false
	p.request.Metrics = []query.MetricQuery{metric}
	p.request.Text, p.request.Client = string(r.query), "roll-up task "+t.id
	p.bucketing = lastRange(&metric)
	p.sampling = p.bucketing.Sampling
	p.zone = req.Zone
	if p.bucketing.Zone != nil {
		p.zone = p.bucketing.Zone
	}
	if r.zone != nil {
		p.zone, p.request.Zone, p.bucketing.Zone = r.zone, r.zone, r.zone
	}
	p.grid = query.NewGrid(p.sampling, p.zone)
	// Stamps and cuts must come out the same whenever the bucket is computed.
	p.bucketing.Align, p.bucketing.EndMS = false, nil
	p.bucketing.AlignStart = p.bucketing.AlignStart || !p.bucketing.AlignEnd
	p.output = output{
		scheduler: s, writer: s.pipeline.NewWriter(s.protocol, p.request.Client, 0),
		metric: r.saveAs, source: metric.Metric, ttl: r.ttl,
	}
	return p, nil
}

// compute stores the results of all buckets from that of startMS to that of
// endMS, batch by batch; done is told the end of each batch.
func (p *pass) compute(ctx context.Context, startMS, endMS int64, done func(untilMS int64) error) error {
	end := p.grid.Next(endMS)
	for from := p.grid.Start(startMS); from < end; {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		until, buckets := p.batch(from, end)
		if err := p.divide(ctx, from, until, buckets); err != nil {
			return err
		}
		if err := done(until); err != nil {
			return err
		}
		from = until
	}
	return nil
}

// batch returns the end of a batch of buckets from the start of one.
func (p *pass) batch(from, end int64) (until int64, buckets int) {
	if run, bounded := p.grid.Run(from); bounded {
		end = min(end, run)
	}
	for until = from; until < end && buckets < p.scheduler.config.BatchBuckets; buckets++ {
		until = p.grid.Next(until)
	}
	return until, buckets
}

// divide computes a batch, in halves if it exceeds a limit as a whole.
func (p *pass) divide(ctx context.Context, from, until int64, buckets int) error {
	err := p.once(ctx, from, until)
	var limit *store.LimitError
	var busy *query.BusyError
	if err == nil || buckets <= 1 || !errors.As(err, &limit) || errors.As(err, &busy) {
		return err
	}
	half := from
	for range buckets / 2 {
		half = p.grid.Next(half)
	}
	if err := p.divide(ctx, from, half, buckets/2); err != nil {
		return err
	}
	return p.divide(ctx, half, until, buckets-buckets/2)
}

// once computes the buckets from one that begins at from to one that ends at
// until, with one query.
func (p *pass) once(ctx context.Context, from, until int64) (err error) {
	req := p.request
	req.Range = model.TimeRange{StartMS: from, EndMS: until - 1}
	p.bucketing.StartMS = &from
	p.output.groups, p.output.held = p.output.groups[:0], 0
	run, err := p.scheduler.engine.Start(ctx, req)
	if err != nil {
		return err
	}
	defer run.Close(errPanicked) // does nothing after the Close below
	err = p.read(ctx, run)
	run.Close(err)
	return err
}

func (p *pass) read(ctx context.Context, run *query.Run) error {
	result, err := run.Metric(0)
	if err != nil {
		return err
	}
	defer result.Close()
	for {
		group, err := result.Next()
		if err != nil {
			return err
		}
		if group == nil {
			return p.output.flush(ctx)
		}
		if err := p.output.add(ctx, group); err != nil {
			return err
		}
	}
}

// run computes everything that is due of a task and stores its status. The
// error is for the log; it is in the status too.
//
// next says when the task runs again.
func (s *Scheduler) run(ctx context.Context, t *task, next func(failed bool) time.Time) error {
	marks, err := s.catalogue.watermarks(ctx, t.id)
	if err != nil {
		return err
	}
	before, err := s.catalogue.status(ctx, t.id)
	if err != nil {
		return err
	}
	var errs []error
	after := &status{ExecutingHost: s.host}
	for i := range t.rollups {
		r := &t.rollups[i]
		for k := range r.source {
			began := s.now()
			points, err := s.advance(ctx, t, r, k, marks, before)
			m := metricStatus{
				MetricName: r.source[k], LastExecuted: dateText(s.now()), DataPointCount: points,
				ExecutionLength: s.now().Sub(began).Milliseconds(), LastExecution: began.UnixMilli(),
			}
			if err != nil {
				m.ErrorMessage = errorText(err)
				errs = append(errs, fmt.Errorf("%s into %s: %w", r.source[k], r.saveAs, err))
			}
			after.Statuses = append(after.Statuses, m)
		}
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx) // stopping is no fault; the next start goes on
	}
	after.NextScheduled = dateText(next(len(errs) > 0))
	return errors.Join(append(errs, s.catalogue.set(ctx, statusKey, t.id, after.marshal()))...)
}

// advance brings one metric of a roll-up up to now.
func (s *Scheduler) advance(ctx context.Context, t *task, r *rollup, k int, marks watermarks, before *status) (points int64, err error) {
	p, err := s.newPass(t, r, k)
	if err != nil {
		return 0, err
	}
	now := s.now().UnixMilli()
	mark, known := marks[r.keys[k]]
	start := min(mark.UntilMS, mark.RunMS-s.config.LateHorizon.Milliseconds())
	if !known {
		start = firstStart(t, p, before, now)
		marks[r.keys[k]] = watermark{UntilMS: start, RunMS: now} // a failure does not lose it
		if err := s.catalogue.set(ctx, watermarkKey, t.id, t.only(marks).marshal()); err != nil {
			return 0, err
		}
	}
	current := p.grid.Start(now)
	err = p.compute(ctx, start, now, func(until int64) error {
		marks[r.keys[k]] = watermark{UntilMS: min(until, current), RunMS: now}
		return s.catalogue.set(ctx, watermarkKey, t.id, t.only(marks).marshal())
	})
	return p.output.stored, err
}

// firstStart is where a roll-up begins that has never run: where KairosDB would
// go on with a keyspace that it has left, else one interval and one bucket back.
func firstStart(t *task, p *pass, before *status, now int64) int64 {
	if before != nil && len(before.Statuses) > 0 && before.lastExecution() > 0 {
		return before.lastExecution()
	}
	start := query.Ago(now, t.interval.Value, t.interval.Unit)
	return query.Later(start, -p.sampling.Value, p.sampling.Unit, p.zone)
}

// only drops the watermarks of what is no part of the task any more.
func (t *task) only(marks watermarks) watermarks {
	kept := watermarks{}
	for _, r := range t.rollups {
		for _, key := range r.keys {
			if m, ok := marks[key]; ok {
				kept[key] = m
			}
		}
	}
	return kept
}

// backfill computes all buckets from that of startMS to that of endMS anew. It
// moves no watermark.
func (s *Scheduler) backfill(ctx context.Context, t *task, startMS, endMS int64) error {
	for i := range t.rollups {
		r := &t.rollups[i]
		for k := range r.source {
			p, err := s.newPass(t, r, k)
			if err != nil {
				return err
			}
			if err := p.compute(ctx, startMS, endMS, func(int64) error { return nil }); err != nil {
				return fmt.Errorf("%s into %s: %w", r.source[k], r.saveAs, err)
			}
		}
	}
	return nil
}
