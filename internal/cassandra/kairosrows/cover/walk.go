package cover

import (
	"context"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
)

// A walkNote records when a server last was walking over all metrics. A server that finds the
// note old enough walks, and renews the note meanwhile, so usually one of the servers that
// share a keyspace walks.
//
// It is not a lease: two servers that read it at the same moment both walk, and write the same
// rows. If the walking server dies, another one walks an Interval later.
type walkNote struct {
	Node string    `json:"node"` // which process walks
	At   time.Time `json:"at"`   // by its clock
}

const (
	walkKey   = "walk" // no progressKey: these begin with a number
	walkRenew = 4      // how many times per Interval the note is renewed

	// walkRetry is the pause after a walk that failed, for example because Cassandra was away. Each
	// further failure doubles it, up to the Interval.
	walkRetry = time.Minute
)

// turn walks, unless another server does so, and returns the time until the next turn.
func (c *Coverer) turn(ctx context.Context) time.Duration {
	wait, err := c.walkElsewhere(ctx)
	if err != nil {
		c.log.Debug("cannot find out whether another server looks for row keys that the inverted index lacks; this server looks", "error", err)
	}
	if wait > 0 {
		return wait
	}
	c.walks.Inc()
	c.noteWalk(ctx)
	if err := c.walk(ctx); err != nil && ctx.Err() == nil {
		pause := min(c.retry, c.config.Interval)
		c.retry = 2 * pause
		c.log.Warn("cannot look for row keys that the inverted index lacks; will retry", "in", pause, "error", err)
		return pause
	}
	c.retry = walkRetry
	return c.config.Interval
}

// walkElsewhere returns how long to wait because of another server's walk, 0 if there is none.
// A note with a time far in the future comes from a wrong clock, and must not stop all walks
// until then.
func (c *Coverer) walkElsewhere(ctx context.Context) (time.Duration, error) {
	var note walkNote
	found, err := c.readNote(ctx, walkKey, &note)
	age := c.now().Sub(note.At)
	if err != nil || !found || note.Node == c.own || age.Abs() >= c.config.Interval {
		return 0, err
	}
	return c.config.Interval - age, nil
}

// noteWalk tells other servers that this one walks. If that fails, they walk too.
func (c *Coverer) noteWalk(ctx context.Context) {
	if err := c.writeNote(ctx, walkKey, walkNote{Node: c.own, At: c.now().UTC()}); err != nil {
		c.log.Debug("cannot tell other servers that this one looks for row keys that the inverted index lacks; they may look too", "error", err)
	}
}

// walk covers all metrics: row times that were never covered, and recent ones, into
// which KairosDB nodes may have written since. Older ones are covered when a query
// finds that they have changed.
func (c *Coverer) walk(ctx context.Context) error {
	pace := rate.NewLimiter(coverLooks, 1)
	names, err := c.source.Metrics(ctx)
	if err != nil {
		return err
	}
	noted := c.now()
	for _, metric := range names {
		if err := pace.Wait(ctx); err != nil {
			return err
		}
		if now := c.now(); now.Sub(noted) >= c.config.Interval/walkRenew {
			noted = now
			c.noteWalk(ctx)
		}
		states, err := c.source.RowTimes(ctx, metric)
		if err != nil {
			return err
		}
		for _, s := range slices.Backward(states) {
			p := rowkey.Partition{Metric: metric, TimeMS: s.TimeMS}
			if !c.worthALook(s) || c.postponed(p) {
				continue
			}
			c.coverOrPutOff(ctx, p)
			c.serve(ctx)
			if err := pace.Wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// worthALook reports whether a walk should check a row time.
func (c *Coverer) worthALook(s rowkey.RowTime) bool {
	recent := c.now().Add(-coverRecent).UnixMilli() - c.ks.Spec.Width
	return s.KairosMtime == (cql.UUID{}) || s.TimeMS >= recent
}
