package write

import (
	"container/list"
	"maps"
	"slices"
	"sync"
	"time"

	"varve/internal/cassandra/kairosrows/rowkey"
)

// known records which index rows exist, so that this process writes them once and not with
// every sample. A record is valid until the row expires, or until it is forgotten because
// another process may have removed the row: see [Writer] for the rule. The cache is bounded:
// when it is full, the least recently used partitions are evicted, which costs a repeated
// write, never a sample. While a KairosDB node runs, evicted partitions that got samples since
// the last check by [Watch] are kept in a separate list until it has checked them, up to a
// quarter of the bound.
//
// The epoch counts how often something was forgotten because of a removal. A writer of samples
// that relies on a record reads the epoch before and after the write. Index rows that were
// forgotten in between may be gone, so it writes them again.
type known struct {
	max int // bound of weight

	mu        sync.Mutex
	parts     map[rowkey.Partition]*list.Element
	order     list.List // of *knownPart, most recently used first
	weight    int
	rows      int
	evictions uint64
	epoch     uint64
	forgotten []forgetting // the most recent ones, oldest first

	// For [Watch], which checks what KairosDB nodes delete.
	watching      bool         // a KairosDB node may be running, or may have run recently
	evicted       []*knownPart // evicted partitions that the watch has yet to check, oldest first
	evictedWeight int
	unwatchable   uint64 // row keys of partitions that did not fit into evicted
}

// A knownPart is a partition of row_keys, (metric, row time), for which the rows that all its
// row keys share are known to exist: the row time, the metric's name and the state.
type knownPart struct {
	key       rowkey.Partition
	expirySec int64                // until when the row time lives, Unix seconds, or forever
	changedMS int64                // write timestamp of varve_row_state.changed as last seen
	rows      map[rowkey.Key]int64 // until when the index rows of a row key live
	weight    int

	// For [Watch], which checks what KairosDB nodes delete.
	relied  time.Time // when samples that rely on it were last written; zero if never since the last check
	watched time.Time // when it was last checked
	apart   bool      // evicted, and no samples relied on it at the last call of unwatched
}

// A forgetting is a span that was forgotten: row times of one metric, or everything if the
// metric is empty.
type forgetting struct {
	rowkey.Span
	epoch uint64 // the epoch that it began
}

// maxForgettings is how many forgettings are kept. Of older ones it is known only that
// something was forgotten.
const maxForgettings = 256

func newKnown(max int) *known {
	return &known{max: max, parts: map[rowkey.Partition]*list.Element{}, watching: true}
}

// rowWeight is the weight of a row key in the cache: 1, or more if it is long.
func rowWeight(k rowkey.Key) int { return 1 + (len(k.Type)+rowkey.MapBytes(k.Tags))/256 }

// holds reports whether the index rows of a row key are known to exist until needSec.
func (c *known) holds(p rowkey.Partition, k rowkey.Key, needSec int64) bool {
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

// anyAlive returns an arbitrary known row key of a partition, and whether its index rows live
// beyond sec.
func (c *known) anyAlive(p rowkey.Partition, sec int64) (k rowkey.Key, alive bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.parts[p]
	if at == nil {
		return k, false
	}
	part := at.Value.(*knownPart)
	for k, expirySec := range part.rows {
		return k, min(expirySec, part.expirySec) > sec
	}
	return k, false
}

// part returns what the row keys of a partition share; ok is false if the partition is not
// known.
func (c *known) part(p rowkey.Partition) (expirySec, changedMS int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.parts[p]
	if at == nil {
		return 0, 0, false
	}
	part := at.Value.(*knownPart)
	return part.expirySec, part.changedMS, true
}

// put adds row keys whose index rows were written to live until expirySec. epoch is the epoch
// at which writing these index rows began.
func (c *known) put(epoch uint64, p rowkey.Partition, expirySec, changedMS int64, rows []Row) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.forgottenSinceLocked(epoch, p) {
		return
	}
	at := c.parts[p]
	if at == nil {
		at = c.order.PushFront(&knownPart{key: p, rows: map[rowkey.Key]int64{}})
		c.parts[p] = at
	}
	part := at.Value.(*knownPart)
	part.expirySec, part.changedMS = expirySec, max(part.changedMS, changedMS)
	for i := range rows {
		c.addLocked(part, rows[i].key(), expirySec)
	}
	for c.weight > c.max && c.order.Len() > 1 {
		oldest := c.order.Back()
		c.evictions += uint64(c.dropLocked(oldest))
		c.keepApartLocked(oldest.Value.(*knownPart))
	}
	if c.weight > c.max {
		c.shrinkLocked(part)
	}
}

// shrinkLocked evicts row keys of a single partition that exceeds the bound.
func (c *known) shrinkLocked(part *knownPart) {
	apart := &knownPart{key: part.key, rows: map[rowkey.Key]int64{}, relied: part.relied, watched: part.watched}
	for k, expirySec := range part.rows {
		if c.weight <= c.max {
			break
		}
		apart.rows[k] = expirySec
		apart.weight += rowWeight(k)
		c.removeLocked(part, k)
		c.evictions++
	}
	c.keepApartLocked(apart)
}

// keepApartLocked keeps an evicted partition until the watch has checked it.
func (c *known) keepApartLocked(part *knownPart) {
	switch {
	case !c.watching || len(part.rows) == 0:
	case c.evictedWeight+part.weight > c.max/4:
		c.unwatchable += uint64(len(part.rows))
	default:
		c.evicted = append(c.evicted, part)
		c.evictedWeight += part.weight
	}
}

func (c *known) addLocked(part *knownPart, k rowkey.Key, expirySec int64) {
	if _, there := part.rows[k]; !there {
		w := rowWeight(k)
		part.weight += w
		c.weight += w
		c.rows++
	}
	part.rows[k] = expirySec
}

func (c *known) removeLocked(part *knownPart, k rowkey.Key) {
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
func (c *known) forget(s rowkey.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	f := forgetting{s, c.epoch}
	for p, at := range c.parts {
		if f.Has(p) {
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

// since returns what was forgotten after an epoch, and the present epoch.
func (c *known) since(epoch uint64) ([]forgetting, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch == c.epoch {
		return nil, epoch
	}
	if c.lostLocked(epoch) {
		return []forgetting{{rowkey.Everything, c.epoch}}, c.epoch
	}
	var after []forgetting
	for _, f := range c.forgotten {
		if f.epoch > epoch {
			after = append(after, f)
		}
	}
	return after, c.epoch
}

// lostLocked reports whether the list of forgettings no longer reaches back to an epoch.
func (c *known) lostLocked(epoch uint64) bool {
	return epoch < c.epoch && c.epoch-epoch > uint64(len(c.forgotten))
}

func (c *known) forgottenSinceLocked(epoch uint64, p rowkey.Partition) bool {
	if c.lostLocked(epoch) {
		return true
	}
	for _, f := range c.forgotten {
		if f.epoch > epoch && f.Has(p) {
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

// rely records that samples were written that rely on the index rows of these partitions.
func (c *known) rely(parts map[rowkey.Partition]struct{}, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range parts {
		if at := c.parts[p]; at != nil {
			at.Value.(*knownPart).rely(now)
		}
	}
	for _, part := range c.evicted {
		if _, there := parts[part.key]; there {
			part.rely(now) // evicted after its index rows and before its samples were written
		}
	}
}

func (part *knownPart) rely(now time.Time) {
	if part.relied = now; part.watched.IsZero() {
		part.watched = now
	}
}

// due reports whether the partition got samples since its last check, and that check was at
// least interval ago.
func (part *knownPart) due(now time.Time, interval time.Duration) bool {
	d := now.Sub(part.watched)
	return !part.relied.IsZero() && (d >= interval || d < 0)
}

// watchFor sets whether a KairosDB node runs or has run recently.
func (c *known) watchFor(nodes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watching = nodes; !nodes {
		c.evicted, c.evictedWeight = nil, 0
	}
}

// unwatched returns the partitions that are due.
func (c *known) unwatched(now time.Time, interval time.Duration) []rowkey.Partition {
	c.mu.Lock()
	defer c.mu.Unlock()
	due := map[rowkey.Partition]bool{}
	for p, at := range c.parts {
		if at.Value.(*knownPart).due(now, interval) {
			due[p] = true
		}
	}
	c.evicted = slices.DeleteFunc(c.evicted, func(part *knownPart) bool {
		if part.due(now, interval) {
			due[part.key] = true
		}
		// Samples that are being written now may still rely on it, but only until the next
		// call.
		idle := part.relied.IsZero() && part.apart
		part.apart = part.relied.IsZero()
		if idle {
			c.evictedWeight -= part.weight
		}
		return idle
	})
	return slices.Collect(maps.Keys(due))
}

// watch records that a partition is being checked. It returns its row keys with the expiry of
// their index rows, including evicted ones.
func (c *known) watch(p rowkey.Partition, now time.Time) map[rowkey.Key]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	rows := map[rowkey.Key]int64{}
	if at := c.parts[p]; at != nil {
		part := at.Value.(*knownPart)
		part.watched, part.relied = now, time.Time{}
		maps.Copy(rows, part.rows)
	}
	c.evicted = slices.DeleteFunc(c.evicted, func(part *knownPart) bool {
		if part.key != p {
			return false
		}
		maps.Copy(rows, part.rows)
		c.evictedWeight -= part.weight
		return true
	})
	return rows
}

// watchAgain schedules row keys to be checked again.
func (c *known) watchAgain(p rowkey.Partition, rows map[rowkey.Key]int64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.parts[p]; at != nil {
		part := at.Value.(*knownPart)
		part.rely(now)
		rows = maps.Clone(rows)
		maps.DeleteFunc(rows, func(k rowkey.Key, _ int64) bool { _, known := part.rows[k]; return known })
	}
	if len(rows) == 0 {
		return
	}
	apart := &knownPart{key: p, rows: rows, relied: now, watched: now}
	for k := range rows {
		apart.weight += rowWeight(k)
	}
	c.keepApartLocked(apart)
}

// missed returns how many evicted row keys could not be kept for the watch.
func (c *known) missed() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unwatchable
}
