package cover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/store"
)

// A coverProgress is how far a pass over a partition of row_keys has come: all
// row keys up to one are in the inverted index. It is kept in service_index, under
// the row time and the metric, while a pass takes longer than coverSave.
//
// It is worth something as long as row_keys.mtime is what it was. If that has
// moved on, row keys may have been added anywhere before that place. If it has
// not, what was there when the pass read it is what was there when it began, so
// that another pass can go on behind it, with a write timestamp of its own.
//
// A progress that was written down a moment ago is of a pass that is under way,
// on another node or on this one before a restart: that partition is left alone.
// Two passes that begin at once notice each other at their first coverSave. Were
// they not to, they would write the same rows twice.
type coverProgress struct {
	Mtime   cql.UUID  `json:"mtime"`
	Type    string    `json:"type"`
	Tags    []byte    `json:"tags"`     // as Cassandra has them
	Keys    int       `json:"keys"`     // up to that one
	SinceMS int64     `json:"since_ms"` // the lowest write timestamp of what was copied
	Node    string    `json:"node"`     // whose pass it is
	Updated time.Time `json:"updated"`
}

const (
	coverService = "Coverage"

	// coverSave is how often a pass looks whether mtime has moved and writes down
	// how far it has come.
	coverSave = 10 * time.Second

	// coverSilence is how long a pass may be silent before another one goes on.
	coverSilence = time.Minute

	// coverRest is how many times as long as a pass was under way that was of no
	// use no other one is made.
	coverRest = 10

	// maxRests bounds the partitions that are known to rest.
	maxRests = 10_000
)

var (
	errPassMoved = errors.New("row keys were added or removed meanwhile")
	errPassTaken = errors.New("another pass is under way")

	readRowKeysFrom = &cql.Statement{Name: "read_row_keys_from", Level: cql.Quorum, Prefetch: true,
		Text: "SELECT data_type, tags FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND (data_type, tags) >= (?, ?)"}
)

func progressKey(k rowkey.Partition) string { return fmt.Sprintf("%d %s", k.TimeMS, k.Metric) }

// resume takes up what an earlier pass has left. wait says that one is under way.
func (p *coverPass) resume(ctx context.Context) (wait time.Duration, err error) {
	before, err := p.progress(ctx)
	if err != nil || before == nil {
		return 0, err
	}
	c := p.coverer
	if before.underWay(c) {
		return coverSilence - max(c.now().Sub(before.Updated), 0), nil
	}
	p.noted = true
	known := p.began.UnixMilli()-before.SinceMS < rowkey.MaxUnlooked.Milliseconds() // what was removed since
	if before.Mtime == p.mtime && c.ordered && known {
		p.before, p.sinceMS = before, min(p.sinceMS, before.SinceMS)
		c.log.Info("a pass over row keys continues where an earlier one stopped", "metric", p.key.Metric, "row_time", p.key.TimeMS, "row_keys", before.Keys)
	}
	return 0, nil
}

// underWay reports whether the pass of another process wrote down how far it has come a moment
// ago. A time far ahead is that of a clock that was wrong: nobody waits until then.
func (p *coverProgress) underWay(c *Coverer) bool {
	return p.Node != c.own && c.now().Sub(p.Updated).Abs() < coverSilence
}

// progress reads what is written down; nil if nothing is, or nothing that can be
// read.
func (p *coverPass) progress(ctx context.Context) (*coverProgress, error) {
	value, err := p.coverer.ks.Get(ctx, schema.OwnService, coverService, progressKey(p.key))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	before := new(coverProgress)
	if json.Unmarshal([]byte(value.Text), before) != nil {
		return nil, nil
	}
	return before, nil
}

// save looks whether the pass is of use still, and writes down how far it has
// come, if it is time to.
func (p *coverPass) save(ctx context.Context) error {
	c := p.coverer
	now := c.now()
	if now.Sub(p.saved) < coverSave {
		return nil
	}
	p.saved = now
	s, err := rowkey.ReadStamp(ctx, c.ks.Session, p.key, cql.Everywhere)
	if err != nil {
		return err
	}
	if s.Mtime != p.mtime {
		return errPassMoved
	}
	if !c.ks.Tables.ServiceIndex {
		return nil // a pass that is interrupted begins again
	}
	there, err := p.progress(ctx)
	if err != nil {
		return err
	}
	if there != nil && there.underWay(c) {
		return errPassTaken
	}
	keys := p.copied
	if p.before != nil {
		keys += p.before.Keys
	}
	text, err := json.Marshal(&coverProgress{
		Mtime: p.mtime, Type: string(p.last.Type), Tags: cql.TagMap{Tags: p.last.Tags}.Append(nil), Keys: keys, SinceMS: p.sinceMS, Node: c.own, Updated: now.UTC(),
	})
	if err != nil {
		return err
	}
	p.noted = true
	return c.ks.Set(ctx, schema.OwnService, coverService, progressKey(p.key), string(text))
}

// forget removes what was written down.
func (p *coverPass) forget(ctx context.Context) error {
	if !p.noted {
		return nil
	}
	return p.coverer.ks.Unset(ctx, schema.OwnService, coverService, progressKey(p.key))
}

// rest lets a partition rest after a pass that took so long for nothing, and
// returns for how long.
func (c *Coverer) rest(p rowkey.Partition, took time.Duration) time.Duration {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.rests) >= maxRests {
		maps.DeleteFunc(c.rests, func(_ rowkey.Partition, until time.Time) bool { return !now.Before(until) })
	}
	if len(c.rests) < maxRests {
		c.rests[p] = now.Add(coverRest * took)
	}
	return coverRest * took
}

// restOf returns how long a partition still rests.
func (c *Coverer) restOf(p rowkey.Partition) time.Duration {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	until, ok := c.rests[p]
	if ok && !now.Before(until) {
		delete(c.rests, p)
	}
	return until.Sub(now)
}
