package kairosrows

import (
	"container/list"
	"maps"
	"math"
	"sync"
	"time"
)

// forever is the expiry of what has no time-to-live.
const forever = math.MaxInt64

// known is which index rows this process knows to be there, so that they are written
// once and not with every sample. What is known stays true until the rows expire, or
// until they are forgotten because somebody may have removed them: see [Writer] for
// the rule. It is bounded: the partitions that were not used for longest are
// forgotten when it is full, which costs a repeated write, never a sample.
//
// The epoch counts how often something was forgotten because of a removal. A writer
// of samples that relies on what is known looks at the epoch before and after; index
// rows that were forgotten in between may be gone, and it writes them again.
type known struct {
	max int // weights of rows, in total

	mu        sync.Mutex
	parts     map[partKey]*list.Element
	order     list.List // of *knownPart, the one used last in front
	weight    int
	rows      int
	evictions uint64
	epoch     uint64
	forgotten []forgetting // the last of them, the oldest first
}

// A knownPart is a partition of row_keys, (metric, row time), with all that its row
// keys share: its row time, the metric's name and its state are there.
type knownPart struct {
	key       partKey
	expirySec int64            // until when the row time lives, Unix seconds, or forever
	changedMS int64            // write timestamp of varve_row_state.changed as last seen
	rows      map[rowKey]int64 // until when the index rows of a row key live
	weight    int

	// For the watch over what KairosDB nodes delete.
	relied  time.Time // when samples were last written that relied on it; zero: since it was looked at, never
	watched time.Time // when it was last looked at
}

// A forgetting is what was forgotten at once: a span of row times of one metric, or
// everything if the metric is empty.
type forgetting struct {
	span
	epoch uint64 // after it
}

// has reports whether a partition is in a span, or the span is everything.
func (s span) has(k partKey) bool {
	return s.metric == "" || s.metric == k.metric && s.lowMS <= k.timeMS && k.timeMS <= s.highMS
}

// everything is a span that means all metrics.
var everything = span{}

// maxForgettings is how many of them are told apart. Of older ones it is known only
// that something was forgotten.
const maxForgettings = 256

func newKnown(max int) *known {
	return &known{max: max, parts: map[partKey]*list.Element{}}
}

// rowWeight is how much of the cache a row key takes: 1, or more if it is long.
func rowWeight(k rowKey) int { return 1 + (len(k.typ)+mapBytes(k.tags))/256 }

// holds reports whether the index rows of a row key are known to be there until
// needSec.
func (c *known) holds(p partKey, k rowKey, needSec int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.parts[p]
	if at == nil {
		return false
	}
	c.order.MoveToFront(at)
	expiry, ok := at.Value.(*knownPart).rows[k]
	return ok && expiry >= needSec
}

// part returns what the row keys of a partition share, false if that is not known.
func (c *known) part(p partKey) (expirySec, changedMS int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.parts[p]
	if at == nil {
		return 0, 0, false
	}
	part := at.Value.(*knownPart)
	return part.expirySec, part.changedMS, true
}

// put adds row keys whose index rows were written, by one who began at epoch, to
// live until expirySec.
func (c *known) put(epoch uint64, p partKey, expirySec, changedMS int64, rows []pendingRow) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.forgottenSinceLocked(epoch, p) {
		return
	}
	at := c.parts[p]
	if at == nil {
		at = c.order.PushFront(&knownPart{key: p, rows: map[rowKey]int64{}})
		c.parts[p] = at
	}
	part := at.Value.(*knownPart)
	part.expirySec, part.changedMS = expirySec, max(part.changedMS, changedMS)
	for i := range rows {
		c.addLocked(part, rows[i].key(), expirySec)
	}
	for c.weight > c.max && c.order.Len() > 1 {
		c.evictions += uint64(c.dropLocked(c.order.Back()))
	}
	for k := range part.rows {
		if c.weight <= c.max {
			break
		}
		c.removeLocked(part, k)
		c.evictions++
	}
}

func (c *known) addLocked(part *knownPart, k rowKey, expirySec int64) {
	if _, there := part.rows[k]; !there {
		w := rowWeight(k)
		part.weight += w
		c.weight += w
		c.rows++
	}
	part.rows[k] = expirySec
}

func (c *known) removeLocked(part *knownPart, k rowKey) {
	if _, there := part.rows[k]; there {
		w := rowWeight(k)
		part.weight -= w
		c.weight -= w
		c.rows--
		delete(part.rows, k)
	}
}

// dropLocked removes a partition and returns how many row keys it had.
func (c *known) dropLocked(at *list.Element) int {
	part := c.order.Remove(at).(*knownPart)
	delete(c.parts, part.key)
	c.weight -= part.weight
	c.rows -= len(part.rows)
	return len(part.rows)
}

// forget forgets a span of row times of a metric, or everything.
func (c *known) forget(s span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	f := forgetting{s, c.epoch}
	for p, at := range c.parts {
		if f.has(p) {
			c.dropLocked(at)
		}
	}
	if len(c.forgotten) == maxForgettings {
		c.forgotten = append(c.forgotten[:0], c.forgotten[1:]...)
	}
	c.forgotten = append(c.forgotten, f)
}

// now returns the epoch.
func (c *known) now() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch
}

// since returns what was forgotten after an epoch, and the epoch that this brings one
// to.
func (c *known) since(epoch uint64) ([]forgetting, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch == c.epoch {
		return nil, epoch
	}
	if c.lostLocked(epoch) {
		return []forgetting{{everything, c.epoch}}, c.epoch
	}
	var after []forgetting
	for _, f := range c.forgotten {
		if f.epoch > epoch {
			after = append(after, f)
		}
	}
	return after, c.epoch
}

// lostLocked reports whether it is no longer known what was forgotten after an epoch.
func (c *known) lostLocked(epoch uint64) bool {
	return epoch < c.epoch && c.epoch-epoch > uint64(len(c.forgotten))
}

func (c *known) forgottenSinceLocked(epoch uint64, p partKey) bool {
	if c.lostLocked(epoch) {
		return true
	}
	for _, f := range c.forgotten {
		if f.epoch > epoch && f.has(p) {
			return true
		}
	}
	return false
}

func (c *known) size() (rows int, evictions uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rows, c.evictions
}

// rely notes that samples were written that rely on index rows of some partitions.
func (c *known) rely(parts map[partKey]struct{}, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range parts {
		at := c.parts[p]
		if at == nil {
			continue
		}
		part := at.Value.(*knownPart)
		if part.relied = now; part.watched.IsZero() {
			part.watched = now
		}
	}
}

// unwatched returns partitions with samples that were written since they were last
// looked at, interval ago or more.
func (c *known) unwatched(now time.Time, interval time.Duration) []partKey {
	c.mu.Lock()
	defer c.mu.Unlock()
	var due []partKey
	for p, at := range c.parts {
		part := at.Value.(*knownPart)
		if d := now.Sub(part.watched); !part.relied.IsZero() && (d >= interval || d < 0) {
			due = append(due, p)
		}
	}
	return due
}

// watch notes that a partition is being looked at, and returns its row keys with the
// expiry of their index rows.
func (c *known) watch(p partKey, now time.Time) map[rowKey]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.parts[p]
	if at == nil {
		return nil
	}
	part := at.Value.(*knownPart)
	part.watched, part.relied = now, time.Time{}
	return maps.Clone(part.rows)
}
