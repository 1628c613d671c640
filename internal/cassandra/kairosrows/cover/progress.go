package cover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/store"
)

// A coverProgress records how far a pass over a partition of row_keys has come: all row keys up
// to Type and Tags are in the inverted index. A pass that takes longer than coverSave keeps it
// in service_index, under the row time and the metric.
//
// It is valid while row_keys.mtime is unchanged: then no row key was added before that position, and
// another pass can continue after it, with a write timestamp of its own.
//
// If it was stored less than coverSilence ago, a pass is probably still running, on another
// node or on this one before a restart, so that partition is left alone. Two passes that begin
// at once notice each other at their first coverSave.
type coverProgress struct {
	Mtime   cql.UUID  `json:"mtime"`
	Type    string    `json:"type"`
	Tags    []byte    `json:"tags"`     // as Cassandra encodes them
	Keys    int       `json:"keys"`     // number of row keys up to there
	SinceMS int64     `json:"since_ms"` // the lowest write timestamp of the copied rows
	Node    string    `json:"node"`     // the process that runs the pass
	Updated time.Time `json:"updated"`
}

const (
	coverService = "Coverage"

	// coverSave is how often a pass checks whether mtime has changed and stores its progress.
	coverSave = 10 * time.Second

	// coverSilence is how long a pass may store no progress before another pass continues it.
	coverSilence = time.Minute

	// coverRest times the duration of a useless pass is how long its partition is then left
	// alone.
	coverRest = 10
)

var (
	errPassMoved = errors.New("row keys were added or removed meanwhile")
	errPassTaken = errors.New("another pass is under way")

	readRowKeysFrom = &cql.Statement{Name: "read_row_keys_from", Level: cql.Quorum, Prefetch: true,
		Text: "SELECT data_type, tags FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND (data_type, tags) >= (?, ?)"}
)

func progressKey(k rowkey.Partition) string { return fmt.Sprintf("%d %s", k.TimeMS, k.Metric) }

// resume continues an earlier pass from its progress. If that pass may still be running, wait
// is how long to wait.
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
	known := p.began.UnixMilli()-before.SinceMS < rowkey.MaxUnlooked.Milliseconds() // all removals since are still announced
	if before.Mtime == p.mtime && c.ordered && known {
		p.before, p.sinceMS = before, min(p.sinceMS, before.SinceMS)
		c.log.Info("a pass over row keys continues where an earlier one stopped", "metric", p.key.Metric, "row_time", p.key.TimeMS, "row_keys", before.Keys)
	}
	return 0, nil
}

// underWay reports whether another process stored this progress less than coverSilence ago. A
// time far in the future comes from a wrong clock, and is not waited for.
func (p *coverProgress) underWay(c *Coverer) bool {
	return p.Node != c.own && c.now().Sub(p.Updated).Abs() < coverSilence
}

// progress reads the stored progress; nil if there is none that can be parsed.
func (p *coverPass) progress(ctx context.Context) (*coverProgress, error) {
	before := new(coverProgress)
	if found, err := p.coverer.readNote(ctx, progressKey(p.key), before); err != nil || !found {
		return nil, err
	}
	return before, nil
}

// readNote reads what a server has stored under a key. It reports whether there is something that can
// be parsed.
func (c *Coverer) readNote(ctx context.Context, key string, note any) (found bool, err error) {
	value, err := c.ks.Get(ctx, schema.OwnService, coverService, key)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil && json.Unmarshal([]byte(value.Text), note) == nil, err
}

// writeNote stores a note for other servers, and for this one after a restart.
func (c *Coverer) writeNote(ctx context.Context, key string, note any) error {
	text, err := json.Marshal(note)
	if err != nil || !c.ks.Tables.ServiceIndex {
		return err
	}
	return c.ks.Set(ctx, schema.OwnService, coverService, key, string(text))
}

// save checks whether the pass is still useful, and stores its progress if that is due.
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
	p.noted = c.ks.Tables.ServiceIndex // otherwise an interrupted pass begins again
	return c.writeNote(ctx, progressKey(p.key), &coverProgress{
		Mtime: p.mtime, Type: string(p.last.Type), Tags: cql.TagMap{Tags: p.last.Tags}.Append(nil), Keys: keys, SinceMS: p.sinceMS, Node: c.own, Updated: now.UTC(),
	})
}

// forget removes the stored progress.
func (p *coverPass) forget(ctx context.Context) error {
	if !p.noted {
		return nil
	}
	return p.coverer.ks.Unset(ctx, schema.OwnService, coverService, progressKey(p.key))
}
