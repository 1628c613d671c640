package rollup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"varve/internal/downsample"
	"varve/internal/ingest"
	"varve/internal/kairos/agg"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/work"
)

// A pass computes one metric of a roll-up.
type pass struct {
	scheduler *Scheduler
	task      *task
	rollup    *rollup
	source    *source
	request   agg.Query
	bucketing *agg.Range // the last range aggregator
	earlier   []cut      // the range aggregators before it
	grid      *agg.Grid
	sampling  agg.Sampling
	back      int           // buckets read before a batch
	tail      bool          // minBack buckets are read after a batch, too
	single    bool          // each bucket is a query of its own
	yields    bool          // a backfill: it takes a slot per query, so that waiting runs get slots in between
	job       *job          // of a pass that yields; nil if the task is not scheduled
	worked    time.Duration // how long a pass that yields has worked since it last paused for a run of another node
	output    output
	renewed   downsample.Span // already computed by renew
}

// A cut is a range aggregator and its grid.
type cut struct {
	bucketing *agg.Range
	grid      *agg.Grid
}

// newPass prepares the computation of a source of r. names is the result of Scheduler.names
// for t.
func (s *Scheduler) newPass(t *task, r *rollup, src *source, names map[name]int) (*pass, error) {
	req, err := s.parser.ParseQuery(r.query)
	if err != nil {
		return nil, err
	}
	p := &pass{scheduler: s, task: t, rollup: r, source: src, request: req}
	metric := req.Metrics[src.index]
	// KairosDB makes one query per bucket, and a limit counts the points that a query
	// reads.
	if p.single = metric.Limit > 0; !p.single {
		metric.Descending = false
	}
	p.request.Metrics = []agg.MetricQuery{metric}
	p.request.Text, p.request.Client = string(r.query), "roll-up task "+t.id
	p.request.Current = true // points that other servers stored before this query must be read now: no later run recomputes their buckets
	p.cut(&metric)
	if r.zone != nil {
		p.request.Zone = r.zone
	}
	p.lookAround(&metric)
	p.output = output{
		scheduler: s, writer: s.pipeline.NewWriter(s.protocol, p.request.Client, 0),
		metric: r.saveAs, source: metric.Metric, ttl: r.ttl,
	}
	// Another roll-up that stores under the same name may have results with the same
	// tags.
	if agg.OneResult(lastRangeStep(&metric)) && names[name{r.saveAs, metric.Metric}] == 1 {
		p.output.bucketOf = p.bucketOf
	}
	return p, nil
}

// A name is what a roll-up's results are stored under, before their tags are added.
type name struct{ saveAs, source string }

// names counts, for each name of t, the roll-ups of all tasks that store under it.
func (s *Scheduler) names(t *task) map[name]int {
	names := map[name]int{}
	for r, src := range t.sources() {
		names[name{r.saveAs, src.metric}]++
	}
	for _, other := range s.beside(t.id) {
		for r, src := range other.sources() {
			if n := names[name{r.saveAs, src.metric}]; n > 0 {
				names[name{r.saveAs, src.metric}] = n + 1
			}
		}
	}
	return names
}

// bucketOf returns the times that results may have in the bucket that contains a
// result's time ms.
func (p *pass) bucketOf(ms int64) model.TimeRange {
	if p.stampsEnd() {
		return model.TimeRange{StartMS: p.grid.Start(ms-1) + 1, EndMS: p.grid.Next(ms - 1)}
	}
	return model.TimeRange{StartMS: p.grid.Start(ms), EndMS: p.grid.Next(ms) - 1}
}

// stampsEnd reports whether results have the time of the end of their bucket, which
// is the start of the next one.
func (p *pass) stampsEnd() bool { return p.bucketing.AlignEnd && !p.bucketing.AlignStart }

// cut fixes the alignment and zone of all range aggregators, so that a bucket and the
// time of its result do not depend on when the bucket is computed. A result without an
// alignment gets the start of its bucket, unless the task may also run on KairosDB:
// there a result has the time of the bucket's first point, and only a result of that
// time overwrites it.
func (p *pass) cut(metric *agg.MetricQuery) {
	for _, one := range rangesOf(metric) {
		zone := p.rollup.zoneOf(&p.request, one)
		one.Align, one.EndMS, one.Zone = false, nil, zone
		if one.Sampling.Value > 0 {
			p.earlier = append(p.earlier, cut{one, agg.NewGrid(one.Sampling, zone)})
		}
	}
	last := p.earlier[len(p.earlier)-1] // checkMetric has checked that there is one
	p.earlier = p.earlier[:len(p.earlier)-1]
	p.bucketing, p.grid, p.sampling = last.bucketing, last.grid, last.bucketing.Sampling
	if p.scheduler.shared == nil {
		p.bucketing.AlignStart = p.bucketing.AlignStart || !p.bucketing.AlignEnd
	}
}

// minBack is the least number of buckets that are read before a batch if aggregators
// use neighbours: some of these buckets may be empty.
const minBack = 60

// lookAround decides how many buckets are read around a batch. It reads none for a
// query that saves points on its way, since the query would save those of the other
// buckets too, nor for one with a limit, which would count them.
func (p *pass) lookAround(metric *agg.MetricQuery) {
	if metric.Saves() || p.single {
		return
	}
	back, tail := agg.Neighbours(metric.Steps)
	if back > 0 {
		p.back = max(back, minBack)
	}
	p.tail = tail
}

// batches returns how the buckets of a pass are computed. A batch is halved if its query exceeds a
// limit, with these exceptions. A query that got no slot is not halved: a smaller one would get no
// slot either. A query whose results exceed a limit of ingest, or whose save_as exceeds a temporary
// limit, is not halved: fewer buckets have as many series.
func (p *pass) batches() *downsample.Batches {
	b := &downsample.Batches{Grid: p.grid, Most: p.scheduler.config.BatchBuckets, Once: p.once, TooMuch: func(err error) bool {
		var limit *store.LimitError
		return errors.As(err, &limit) && !limit.Busy && limit.Wait == 0 && !errors.As(err, new(*ingest.Fault))
	}}
	if p.single {
		b.Most = 1
	}
	return b
}

// around is the range that a query reads to compute the buckets of [from, until).
func (p *pass) around(from, until int64) (start, end int64) {
	start, end = from, until
	if p.single {
		return start, end
	}
	for range p.back {
		before := p.grid.Start(start - 1)
		if !p.regular(before, start) {
			break
		}
		start = before
	}
	if p.tail {
		for range minBack {
			end = p.grid.Next(end)
		}
	}
	for _, c := range p.earlier {
		end = max(end, c.grid.Next(until-1))
		if whole := c.grid.Start(start); whole < start {
			start = p.backTo(start, whole)
		}
	}
	return start, end
}

// backTo steps back bucket by bucket until one begins at or before ms.
func (p *pass) backTo(start, ms int64) int64 {
	for start > ms {
		before := p.grid.Start(start - 1)
		if !p.regular(before, start) {
			break
		}
		start = before
	}
	return start
}

// regular reports whether a query that begins with the bucket at start cuts the next
// bucket where the grid does. It does not where the zone's offset changes.
func (p *pass) regular(start, next int64) bool {
	if p.sampling.Unit < agg.Days {
		return next == agg.Later(start, p.sampling.Value, p.sampling.Unit, time.UTC)
	}
	_, bounded := p.grid.Run(start)
	return !bounded
}

// once computes the buckets of [from, until), which begins and ends with a bucket.
func (p *pass) once(ctx context.Context, from, until int64) error {
	if p.yields {
		return p.inTurn(ctx, func(ctx context.Context) error { return p.step(ctx, from, until) })
	}
	return p.step(ctx, from, until)
}

// step does the work of once when it is the turn of the pass. It leaves out
// buckets that renew has already computed.
func (p *pass) step(ctx context.Context, from, until int64) error {
	if from >= p.renewed.FromMS && from < p.renewed.UntilMS {
		if from = p.renewed.UntilMS; from >= until {
			return nil
		}
	}
	return p.held(ctx, from, until, func(r *renewal, around downsample.Span) error {
		if r != nil {
			return p.renew(ctx, r, from, until, around)
		}
		return p.compute(ctx, from, until)
	})
}

// inTurn runs f once no run computes results of the task, here or on another node, and a slot
// is free. It takes the task, the lease and the slot in the same order as a run.
func (p *pass) inTurn(ctx context.Context, f func(context.Context) error) error {
	s := p.scheduler
	if s.lease != nil && p.worked >= leaseTurn && !s.shared.owns(p.task.id) {
		p.worked = 0
		if err := work.Pause(ctx, leasePause); err != nil {
			return err
		}
	}
	if p.job != nil {
		release, err := work.Take(ctx, p.job.computing)
		if err != nil {
			return err
		}
		defer release()
	}
	return s.underLease(ctx, p.task.id, false, func(ctx context.Context, held func() bool) error {
		if err := s.enter(ctx); err != nil {
			return err
		}
		defer s.leave()
		began := s.now()
		p.output.owned = held
		err := f(ctx)
		p.worked += s.now().Sub(began)
		return err
	})
}

// compute computes buckets with one query and stores their results.
func (p *pass) compute(ctx context.Context, from, until int64) error {
	req := p.request
	start, end := p.around(from, until)
	req.Range = model.TimeRange{StartMS: start, EndMS: end - 1}
	p.bucketing.StartMS = &start
	for _, c := range p.earlier {
		origin := c.grid.Start(start)
		c.bucketing.StartMS = &origin
	}
	within := model.AllTime
	if start != from || end != until {
		within = p.stampsOf(from, until)
	}
	p.output.begin(within)
	if !p.yields { // a backfill stores whatever it computes
		coarse, err := p.coarse(ctx, from, until)
		if err != nil {
			return fmt.Errorf("look for downsampled points of %s: %w", p.source.metric, err)
		}
		p.output.coarse = coarse
	}
	return p.scheduler.engine.Do(ctx, req, func(run *agg.Run) error { return p.read(ctx, run) })
}

func (p *pass) read(ctx context.Context, run *agg.Run) error {
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
			if err := p.output.flush(ctx); err != nil {
				return err
			}
			return p.output.whole()
		}
		if err := p.output.add(ctx, group); err != nil {
			return err
		}
	}
}

// run computes all due buckets of a task and stores its status. The error is also in
// the status. No result is stored once held reports false.
// next returns the time of the task's next run.
func (s *Scheduler) run(ctx context.Context, t *task, held func() bool, next func(failed bool) time.Time) error {
	if s.shared != nil {
		if err := s.late.adopt(ctx, t); err != nil {
			return err
		}
		if err := s.late.inherit(ctx, t, s.shared); err != nil {
			return err
		}
	}
	marks, err := s.catalogue.watermarks(ctx, t.id)
	if err != nil {
		return err
	}
	before, err := s.catalogue.status(ctx, t.id)
	if err != nil {
		return err
	}
	names := s.names(t)
	var errs []error
	after := &status{ExecutingHost: s.host}
	for r, src := range t.sources() {
		began := s.now()
		m := metricStatus{MetricName: src.metric, LastExecution: began.UnixMilli()}
		p, err := s.newPass(t, r, src, names)
		if err == nil {
			if s.shared != nil {
				p.output.owned = func() bool { return held() && s.shared.owns(t.id) }
			}
			err = p.advance(ctx, marks, before)
			m.DataPointCount, m.ErrorMessage = p.output.stored, p.output.complaint()
		}
		m.LastExecuted, m.ExecutionLength = dateText(s.now()), s.now().Sub(began).Milliseconds()
		s.complain(t, m.ErrorMessage)
		if err != nil {
			m.ErrorMessage = errorText(err)
			errs = append(errs, fmt.Errorf("%s into %s: %w", src.metric, r.saveAs, err))
		}
		after.Statuses = append(after.Statuses, m)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx) // stopping is not a failure; the next start continues
	}
	if s.shared != nil && !s.shared.owns(t.id) {
		return errElsewhere // the other node writes the status
	}
	if !t.started(marks) { // see firstStart: the next run would begin at this one
		return errors.Join(errs...)
	}
	after.NextScheduled = dateText(next(len(errs) > 0))
	return errors.Join(append(errs, s.catalogue.setJSON(ctx, statusKey, t.id, after))...)
}

// advance computes a source up to now, and then recomputes the buckets of late points. before
// is the status after the task's last run.
func (p *pass) advance(ctx context.Context, marks watermarks, before *status) error {
	s, t, key := p.scheduler, p.task, p.source.key
	late := s.late.Take(t.id, key)
	now := s.now().UnixMilli()
	mark, known := marks[key]
	former := false
	if !known {
		mark, former = t.former(marks)
	}
	mark = mark.Before(now)
	current := p.grid.Start(now)
	store := func(w downsample.Watermark) error {
		marks[key] = mark.Moved(w, current, s.config.LateHorizon)
		return s.catalogue.setJSON(ctx, watermarkKey, t.id, t.only(marks))
	}
	start := mark.Next(s.config.LateHorizon)
	if life := s.pipeline.DefaultLifetime(); life > 0 { // a result outlives its points
		start = max(start, min(mark.UntilMS, p.grid.Next(now-life)))
	}
	if !known {
		ran := min(now, marks.firstRun(t, s.now()).UnixMilli())
		if first := firstStart(t, p, before, ran); first < start || !former {
			start = first
		}
		if err := store(downsample.Watermark{UntilMS: start, RunMS: now}); err != nil { // so that a failed first run does not move the start
			delete(marks, key)
			return err
		}
	}
	batches := p.batches()
	if err := batches.Advance(ctx, start, now, store); err != nil {
		return err
	}
	return s.late.ComputeLate(ctx, t.id, key, late, p.grid.Start(start), batches, s.metrics.late.Inc)
}

// complain logs that results were not stored, at most once per logEvery. The run does not count
// as failed: a retry would have the same results refused.
func (s *Scheduler) complain(t *task, complaint string) {
	if complaint != "" {
		s.warn(&t.unnamed, "results of a roll-up task were not stored; change its group_by, or the names of its source", t, complaint)
	}
}

// firstStart is where a roll-up without a watermark begins: at the task's last
// execution, if KairosDB has run it, else one interval and one bucket before the time of its first run.
func firstStart(t *task, p *pass, before *status, now int64) int64 {
	if before != nil && before.lastExecution() > 0 {
		return before.lastExecution()
	}
	start := agg.Ago(now, t.interval.Value, t.interval.Unit)
	return agg.Later(start, -p.sampling.Value, p.sampling.Unit, p.bucketing.Zone)
}

// started reports whether all roll-ups of the task have watermarks.
func (t *task) started(marks watermarks) bool {
	for _, src := range t.sources() {
		if _, ok := marks[src.key]; !ok {
			return false
		}
	}
	return true
}

// only drops the watermarks of roll-ups that are no longer part of the task, once all
// parts of the task have watermarks of their own.
func (t *task) only(marks watermarks) watermarks {
	if !t.started(marks) {
		return marks
	}
	kept := watermarks{}
	for _, src := range t.sources() {
		kept[src.key] = marks[src.key]
	}
	return kept
}

// former is the lowest watermark of the roll-ups that are no longer part of the task. A
// changed roll-up has a new key, and has to compute all that the old one had not
// computed yet.
func (t *task) former(marks watermarks) (lowest downsample.Watermark, found bool) {
	own := map[string]bool{}
	for _, src := range t.sources() {
		own[src.key] = true
	}
	for key, m := range marks {
		if own[key] || key == storedAt {
			continue
		}
		if !found {
			lowest, found = m, true
		}
		lowest.UntilMS, lowest.RunMS = min(lowest.UntilMS, m.UntilMS), min(lowest.RunMS, m.RunMS)
		lowest.HorizonMS = max(lowest.HorizonMS, m.HorizonMS)
	}
	return lowest, found
}

// backfill recomputes all buckets from that of startMS to that of endMS. It moves no
// watermark. It takes a slot for each batch, since a backfill of years must not keep
// tasks from running.
func (s *Scheduler) backfill(ctx context.Context, t *task, j *job, startMS, endMS int64) error {
	names := s.names(t)
	for r, src := range t.sources() {
		p, err := s.newPass(t, r, src, names)
		if err != nil {
			return err
		}
		p.yields, p.job = true, j
		if err := p.batches().Compute(ctx, startMS, endMS, func(int64) error { return nil }); err != nil {
			return fmt.Errorf("%s into %s: %w", src.metric, r.saveAs, err)
		}
		s.complain(t, p.output.complaint())
	}
	return nil
}
