package cover

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/collectors"
	"varve/internal/model"
	"varve/internal/notify"
	"varve/internal/work"
)

// coverLooks is how many partitions per second a walk checks.
const coverLooks = 100

// coverRecent is for how long after the end of a row time a walk expects KairosDB nodes to
// write into it. Later writes are noticed by queries only.
const coverRecent = 24 * time.Hour

var updateKairosMtime = &cql.Statement{Name: "update_kairos_mtime", Level: cql.Quorum,
	Text: "UPDATE varve_row_state USING TTL ? SET kairos_mtime = ? WHERE metric = ? AND row_time = ?"}

// A Coverer adds row keys that KairosDB nodes wrote to the inverted index, one partition of
// row_keys after another: first those that queries asked for, and at intervals all of them,
// newest rows first. A pass over a partition:
//
//	1  read row_keys.mtime, k. If it is younger than Config.Settle, come back
//	   later: a KairosDB node whose clock is behind may add rows without moving it
//	2  read the partition, write varve_row_index
//	3  see whether a delete was announced meanwhile: it may have hidden what was
//	   written. If so, come back later
//	4  varve_row_state.kairos_mtime = k: covered, until mtime moves on
//
// All writes have a timestamp from before step 2, above those of announced removals, so that a
// delete that runs meanwhile wins. Passes may be repeated and interrupted at any point: for
// partitions that are not covered, queries read row_keys.
//
// A long pass records its progress, and continues from there after a restart: see
// coverProgress. A pass that sees mtime change has become useless. It ends, and the partition
// is left alone for coverRest times as long as the pass took, so that a partition to which
// KairosDB nodes keep adding uses only a small part of the rate.
type Coverer struct {
	config     Config
	ks         *schema.Keyspace
	source     Source
	log        *slog.Logger
	now        func() time.Time
	ordered    bool // Cassandra keeps tags in one order
	stop       context.CancelFunc
	tasks      sync.WaitGroup
	wake       chan struct{} // holds a token after Ask
	unregister func()

	mu    sync.Mutex
	asked map[rowkey.Partition]time.Time // the earliest time of its pass

	own  string // identifies this process in coverProgress
	page int    // row keys copied at a time

	retry time.Duration // the pause if the next walk fails

	passes, keys, failures, moved, walks prometheus.Counter
}

// Config holds the settings of a Coverer.
type Config struct {
	Rate     int           // row keys per second; 0 disables the work in the background
	Interval time.Duration // between walks over all metrics
	Settle   time.Duration // how far clocks of nodes may differ, plus the longest duration of a write
}

// A Source lists the partitions that may need covering.
type Source interface {
	// Metrics returns the names of all metrics.
	Metrics(context.Context) ([]string, error)

	// RowTimes returns the row times of a metric, ascending, with their states.
	RowTimes(ctx context.Context, metric string) ([]rowkey.RowTime, error)
}

// Options are the dependencies of a Coverer. All may be zero.
type Options struct {
	Registerer prometheus.Registerer
	Logger     *slog.Logger
	Now        func() time.Time // nil = time.Now

	// ClockSet returns nil once this machine's clock can be relied on, an error if ctx ends
	// before. The work in the background waits for it. nil = the clock always can be.
	ClockSet func(context.Context) error
}

// maxAsked bounds the partitions that Ask remembers; a walk finds the others.
const maxAsked = 10_000

// New returns a Coverer of ks and starts its work in the background. The caller must call
// Close.
func New(ks *schema.Keyspace, config Config, source Source, o Options) (*Coverer, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	set := collectors.Named("varve_cassandra_cover_")
	c := &Coverer{
		config: config, ks: ks, source: source, log: o.Logger, now: o.Now, ordered: rowkey.KeepsMapsInOrder(ks.Session.State().Version),
		wake: make(chan struct{}, 1), asked: map[rowkey.Partition]time.Time{}, own: rand.Text(), page: coverPage, retry: walkRetry, stop: func() {},
		passes:   set.Counter("passes_total", "Partitions of row keys that were added to the inverted index."),
		keys:     set.Counter("row_keys_total", "Row keys that were added to the inverted index, or were already in it."),
		failures: set.Counter("failures_total", "Partitions whose row keys could not be added to the inverted index; they are retried."),
		moved:    set.Counter("moved_total", "Passes over partitions of row keys that were discarded because KairosDB added row keys or a delete removed some meanwhile."),
	}
	c.walks = set.Counter("walks_total", "Times that this server scanned all metrics for row keys that the inverted index lacks. One of several servers does so.")
	set.GaugeFunc("backlog", "Partitions of row keys that queries found missing from the inverted index.", func() float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return float64(len(c.asked))
	})
	var err error
	if c.unregister, err = set.Register(o.Registerer); err != nil {
		return nil, fmt.Errorf("register metrics of coverage: %w", err)
	}
	if c.able() {
		var ctx context.Context
		ctx, c.stop = context.WithCancel(context.Background())
		c.tasks.Go(func() {
			// Index rows with write timestamps in the future would survive deletes.
			if o.ClockSet == nil || o.ClockSet(ctx) == nil {
				c.run(ctx)
			}
		})
	}
	return c, nil
}

// able reports whether this keyspace can be covered.
func (c *Coverer) able() bool {
	return c.config.Rate > 0 && c.ks.Tables.Own && c.ks.Tables.RowKeys && !c.ks.ReadOnly()
}

// Close ends the work in the background.
func (c *Coverer) Close() {
	c.stop()
	c.tasks.Wait()
	c.unregister()
}

// Ask requests that a partition is covered soon.
func (c *Coverer) Ask(p rowkey.Partition) { c.askAt(p, time.Time{}) }

// askAt requests a pass at a time, or later if another request says so: lookups ask during a
// pass too, and must not repeat a useless one at once.
func (c *Coverer) askAt(p rowkey.Partition, notBefore time.Time) {
	if !c.able() {
		return
	}
	c.mu.Lock()
	if at, known := c.asked[p]; known && notBefore.After(at) || !known && len(c.asked) < maxAsked {
		c.asked[p] = notBefore
	}
	c.mu.Unlock()
	notify.Wake(c.wake)
}

// postponed reports whether a pass over a partition was too early, failed or was useless a while
// ago, so that it is left alone for now.
func (c *Coverer) postponed(p rowkey.Partition) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[p].After(c.now())
}

// take returns a partition that is due, or how long to wait until one is.
func (c *Coverer) take() (p rowkey.Partition, wait time.Duration, ok bool) {
	now := c.now()
	wait = c.config.Interval
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, at := range c.asked {
		if !at.After(now) {
			delete(c.asked, p)
			return p, 0, true
		}
		wait = min(wait, at.Sub(now))
	}
	return p, wait, false
}

// retryAfter is the pause after a failed pass.
const retryAfter = 10 * time.Second

func (c *Coverer) run(ctx context.Context) {
	nextWalk := c.now().Add(c.config.Interval / 2)
	for ctx.Err() == nil {
		wait := c.serve(ctx)
		if now := c.now(); !now.Before(nextWalk) {
			wait := c.turn(ctx)
			nextWalk = c.now().Add(wait)
			continue
		}
		select {
		case <-time.After(min(wait, nextWalk.Sub(c.now()))):
		case <-c.wake:
		case <-ctx.Done():
		}
	}
}

// serve covers the requested partitions that are due, and returns how long until the next one
// is.
func (c *Coverer) serve(ctx context.Context) (wait time.Duration) {
	for ctx.Err() == nil {
		p, wait, ok := c.take()
		if !ok {
			return wait
		}
		c.coverOrPutOff(ctx, p)
	}
	return 0
}

func (c *Coverer) coverOrPutOff(ctx context.Context, p rowkey.Partition) {
	_, wait, err := c.cover(ctx, p)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		c.failures.Inc()
		c.log.Warn("row keys could not be added to the inverted index; will retry", "metric", p.Metric, "row_time", p.TimeMS, "error", err)
		c.askAt(p, c.now().Add(retryAfter))
	case wait > 0:
		c.askAt(p, c.now().Add(wait))
	}
}

// Cover adds the row keys of a partition to the inverted index, now. It reports whether the
// index holds all of them afterwards. It may not if KairosDB added some a moment ago, or if
// they are about to expire.
func (c *Coverer) Cover(ctx context.Context, p rowkey.Partition) (covered bool, err error) {
	covered, _, err = c.cover(ctx, p)
	return covered, err
}

// cover makes one pass. If it is too early for it, wait is how long to wait.
func (c *Coverer) cover(ctx context.Context, p rowkey.Partition) (covered bool, wait time.Duration, err error) {
	began := c.now()
	s, err := rowkey.ReadStamp(ctx, c.ks.Session, p, cql.Everywhere)
	if err != nil || s.Mtime == (cql.UUID{}) {
		return false, 0, err
	}
	state, err := rowkey.ReadState(ctx, c.ks, p)
	if err != nil {
		return false, 0, err
	}
	if state.Covers(s) {
		return true, 0, nil
	}
	if age := began.UnixMilli() - s.WrittenMS; age < c.config.Settle.Milliseconds() {
		return false, max(time.Millisecond, c.config.Settle-time.Duration(age)*time.Millisecond), nil
	}
	removals, err := rowkey.ReadAnnounced(ctx, c.ks)
	if err != nil {
		return false, 0, err
	}
	pass := &coverPass{coverer: c, key: p, began: began, stampMS: max(began.UnixMilli(), removals.FloorMS()), mtime: s.Mtime, saved: began}
	pass.sinceMS = pass.stampMS
	pass.ttl, pass.stateTTL = livesOf(state, s, began)
	if wait, err = pass.resume(ctx); err != nil || wait > 0 {
		return false, wait, err
	}
	if err = pass.copyKeys(ctx); err == nil {
		err = pass.checkRemovals(ctx)
	}
	switch {
	case errors.Is(err, errPassTaken):
		return false, coverSilence, nil
	case errors.Is(err, errPassMoved):
		c.moved.Inc()
		return false, coverRest * c.now().Sub(began), pass.forget(ctx)
	case err != nil:
		return false, 0, err
	}
	if err := c.ks.Session.Exec(ctx, updateKairosMtime, c.now().UnixMilli(), pass.stateTTL, s.Mtime, p.Metric, p.TimeMS); err != nil {
		return false, 0, err
	}
	c.passes.Inc()
	return true, 0, pass.forget(ctx)
}

// coverMargin is how much longer, in seconds, index rows live than the mtime for which they
// were covered. Once that mtime has expired, the partition counts as not covered.
const coverMargin = 3600

// livesOf returns the time-to-live of index rows and of the state, in seconds; 0 means that
// they never expire. The rows must live at least as long as mtime, and as long as rows that
// Varve has written: the last write decides the time-to-live, and must not shorten it.
func livesOf(there rowkey.State, s rowkey.Stamp, now time.Time) (rows, state int) {
	if s.TTL == nil || there.ExpirySec == rowkey.Forever {
		return 0, 0
	}
	left := int64(*s.TTL)
	return int(min(max(left+coverMargin, there.ExpirySec-now.Unix()), model.MaxTTL)), int(left)
}

// A coverPass copies one partition of row_keys into varve_row_index.
type coverPass struct {
	coverer  *Coverer
	key      rowkey.Partition
	began    time.Time
	stampMS  int64
	sinceMS  int64    // the lowest write timestamp of copied rows, including those of earlier passes
	mtime    cql.UUID // the mtime for which the partition will be covered
	ttl      int
	stateTTL int

	before *coverProgress // of the pass that this one continues
	copied int            // by this pass
	last   rowkey.Key     // the last one copied
	saved  time.Time      // when the progress was last recorded, or the pass began
	noted  bool           // a progress record exists, from this pass or an earlier one
}

// coverPage is how many row keys are copied at a time.
const coverPage = 2000

// coverParallel is how many batches of index rows are in flight at once.
const coverParallel = 8

func (p *coverPass) copyKeys(ctx context.Context) error {
	from := rowkey.Key{}
	if p.before != nil {
		if tags, err := cql.ParseTagMap(p.before.Tags); err == nil {
			from = rowkey.Key{Type: model.Type(p.before.Type), Tags: tags}
		}
	}
	var page []rowkey.Key
	err := rowkey.Each(ctx, p.coverer.ks.Session, readRowKeysFrom, slices.Concat(p.key.Args(), from.Args()), func(k rowkey.Key) error {
		if page = append(page, k); len(page) < p.coverer.page {
			return nil
		}
		if err := p.write(ctx, page); err != nil {
			return err
		}
		page = page[:0]
		return p.save(ctx)
	})
	if err != nil {
		return err
	}
	return p.write(ctx, page)
}

// checkRemovals looks for deletes that may have hidden copied rows. A delete removes many index
// rows by ranges, under its own write timestamp, and so may also remove rows in these ranges
// that it has not seen because the pass copied them later. Such a pass is useless.
func (p *coverPass) checkRemovals(ctx context.Context) error {
	removals, err := rowkey.ReadAnnounced(ctx, p.coverer.ks)
	if err == nil && removals.MayHide(p.key, p.sinceMS) {
		err = errPassMoved
	}
	return err
}

// write writes the index rows of some keys, within the configured rate.
func (p *coverPass) write(ctx context.Context, keys []rowkey.Key) error {
	c := p.coverer
	batches := rowkey.TagRowBatches(p.key.Metric, p.key.TimeMS, slices.Values(keys), c.ks.IndexShards, p.ttl)
	joined := rowkey.JoinBatches(rowkey.BatchPartitions, batches, c.ks.Session.ReplicaSet)
	err := work.Parallel(ctx, coverParallel, len(joined), "copy row keys", func(ctx context.Context, i int) error {
		_, err := rowkey.SendJoined(ctx, c.ks.Session.Batch, p.stampMS, joined[i])
		return err
	})
	if err != nil {
		return err
	}
	if len(keys) > 0 {
		p.last = keys[len(keys)-1]
	}
	p.copied += len(keys)
	c.keys.Add(float64(len(keys)))
	if c.config.Rate == 0 {
		return nil // a pass that was requested through Cover
	}
	due := p.began.Add(time.Duration(p.copied) * time.Second / time.Duration(c.config.Rate))
	return work.Pause(ctx, due.Sub(c.now()))
}
