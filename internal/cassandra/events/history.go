package events

import (
	"context"
	"encoding/json"
	"errors"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cluster"
	"varve/internal/store"
	"varve/internal/timeline"
	"varve/internal/work"
)

// The history of a timeline is the register layoutName in a space of the timeline's own.
const (
	layoutSpace = "timeline " // followed by the name of the timeline
	layoutName  = "layout"
)

// nameShards is the number of partitions over which the names of timelines are distributed. It
// is part of the format.
const nameShards = 8

const namesPage = 1000

// countEvery is the maximum age of the number of timelines.
const countEvery = time.Minute

var (
	putName     = write("put_timeline_name", "INSERT INTO timeline_names (shard, name, put) VALUES (?, ?, ?)"+forEver)
	nameWritten = read("read_timeline_name", 1, "SELECT put FROM timeline_names WHERE shard = ? AND name = ?")
	deleteName  = write("delete_timeline_name", "DELETE FROM timeline_names"+hiding+" WHERE shard = ? AND name = ?")
	listNames   = read("list_timeline_names", namesPage, "SELECT name FROM timeline_names WHERE shard = ? AND name >= ? LIMIT ?")
	countNames  = &cql.Statement{Name: "count_timeline_names", Level: cql.Quorum, Scan: true, Text: "SELECT count(*) FROM timeline_names WHERE shard = ?"}
)

// History implements timeline.Shelf.
func (s *Shelf) History(ctx context.Context, name string) (timeline.History, error) {
	_, h, err := s.history(ctx, name)
	return h, err
}

func (s *Shelf) history(ctx context.Context, name string) (cluster.Value, timeline.History, error) {
	var h timeline.History
	if err := s.check(); err != nil {
		return cluster.Value{}, h, err
	}
	v, err := s.ready.Load().Get(ctx, layoutSpace+name, layoutName)
	if err != nil || v.Version == 0 {
		return v, h, err
	}
	if err := json.Unmarshal(v.Data, &h); err != nil {
		return v, h, &store.CorruptionError{File: cluster.Table.Name, Reason: "the layout of timeline " + name + ": " + err.Error()}
	}
	return v, h, nil
}

// SetHistory implements timeline.Shelf.
func (s *Shelf) SetHistory(ctx context.Context, name string, old uint64, h timeline.History) error {
	if err := s.check(); err != nil {
		return err
	}
	there, stored, err := s.history(ctx, name)
	if err != nil {
		return err
	}
	if stored.Version != old {
		return timeline.ErrConflict
	}
	if h.Version == 0 {
		return s.removeHistory(ctx, name, there)
	}
	stamp := s.stamp()
	if err := s.session.Exec(ctx, putName, stamp, shardOf(name), name, stamp); err != nil {
		return err
	}
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}
	swap := s.ready.Load().Swap
	if deadline, ok := ctx.Deadline(); ok && old > 0 && time.Until(deadline) >= 2*time.Second {
		swap = s.ready.Load().SwapInTime
	}
	_, err = swap(ctx, layoutSpace+name, layoutName, there, data, 0)
	if err == nil && old == 0 {
		s.count.add(1)
	}
	return conflict(err)
}

func conflict(err error) error {
	if errors.Is(err, cluster.ErrChanged) {
		return timeline.ErrConflict
	}
	return err
}

// removeHistory removes the history, then the name. The tombstone of the name has the write
// timestamp of the name, so that it does not hide the name of a timeline that another server
// creates immediately afterwards.
func (s *Shelf) removeHistory(ctx context.Context, name string, there cluster.Value) error {
	if there.Version == 0 {
		return nil
	}
	var hide int64
	if _, err := s.session.One(ctx, nameWritten, []any{shardOf(name), name}, &hide); err != nil {
		return err
	}
	if err := s.ready.Load().Remove(ctx, layoutSpace+name, layoutName, there); err != nil {
		return conflict(err)
	}
	s.count.add(-1)
	return s.session.Exec(ctx, deleteName, 0, hide, shardOf(name), name)
}

func shardOf(name string) int32 {
	h := fnv.New32a()
	h.Write([]byte(name))
	return int32(h.Sum32() % nameShards)
}

// Names implements timeline.Shelf. It reads up to limit names from each shard, since all could
// be in one shard.
func (s *Shelf) Names(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	from := prefix
	if after >= from {
		from = after + "\x00"
	}
	var found [nameShards][]string
	err := work.Parallel(ctx, nameShards, nameShards, "list timelines", func(ctx context.Context, i int) error {
		rows := s.session.Query(ctx, listNames, int32(i), from, int32(limit))
		defer rows.Close()
		var name string
		for rows.Scan(&name) && strings.HasPrefix(name, prefix) {
			found[i] = append(found[i], name)
		}
		return rows.Close()
	})
	if err != nil {
		return nil, err
	}
	all := slices.Concat(found[:]...)
	slices.Sort(all)
	return all[:min(len(all), limit)], nil
}

// counted is the number of timelines, at most countEvery old.
type counted struct {
	mu sync.Mutex // also held while timelines are counted
	n  int
	at time.Time
}

func (c *counted) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
}

// Count implements timeline.Shelf.
func (s *Shelf) Count(ctx context.Context) (int, error) {
	if err := s.check(); err != nil {
		return 0, err
	}
	c := &s.count
	c.mu.Lock()
	defer c.mu.Unlock()
	if age := s.now().Sub(c.at); age >= 0 && age < countEvery {
		return c.n, nil
	}
	total := 0
	for i := range nameShards {
		var n int64
		if _, err := s.session.One(ctx, countNames, []any{int32(i)}, &n); err != nil {
			return 0, err
		}
		total += int(n)
	}
	c.n, c.at = total, s.now()
	return total, nil
}
