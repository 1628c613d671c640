package write

import (
	"container/list"
	"maps"
	"sync"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
)

// known records which index rows exist, so that this process writes them once and not with
// every sample. A record is valid until the row expires, or until it is forgotten because
// another process may have removed the row: the package comment has a drawing. The cache is
// bounded: when it is full, the least recently used partitions are evicted, which costs a
// repeated write, never a sample. While a KairosDB node runs, the bound is a quarter higher, so
// that few partitions leave before [Watch] has checked them.
//
// What is forgotten stays in the cache as unsure until [Watch] has checked it: earlier samples rely
// on it, and if they are the last ones of their rows, no later sample has the index rows written
// again.
//
// The epoch counts how often something was forgotten because of a removal. A writer of samples
// that relies on a record reads the epoch before and after the write. Index rows that were
// forgotten in between may be gone, so it writes them again.
type known struct {
	max int // bound of weight

	mu        sync.Mutex
	parts     map[rowkey.Partition]*knownPart
	order     list.List // of the same, most recently used first
	weight    int
	rows      int // known and unsure
	evictions uint64

	epoch     uint64
	all       uint64            // the epoch that began when everything was last forgotten
	forgotten map[string]uint64 // the same for metrics of which something was forgotten since

	watching  bool   // a KairosDB node may be running, or may have run recently
	unwatched uint64 // row keys that left before they were checked
}

// A knownPart is a partition of row_keys, (metric, row time). If rows is not empty, the rows that
// all its row keys share are known to exist too: the row time, the metric's name and the state.
type knownPart struct {
	key       rowkey.Partition
	at        *list.Element        // in known.order
	expirySec int64                // until when the row time lives, Unix seconds, or forever
	changedMS int64                // write timestamp of varve_row_state.changed as last seen
	rows      map[rowkey.Key]int64 // until when the index rows of a row key live; may be nil
	unsure    map[rowkey.Key]int64 // the same for forgotten ones, which Watch is to check; may be nil
	weight    int                  // of rows and unsure

	// For [Watch], which checks what KairosDB nodes delete.
	held    bool      // samples that rely on it may be being written
	relied  time.Time // when samples that rely on it were last written; zero if never since the last check
	watched time.Time // when it was last checked, or first relied on; zero if neither
}

// maxForgotten is the number of metrics for which known records when something
// was forgotten.
const maxForgotten = 256

func newKnown(max int) *known {
	return &known{max: max, parts: map[rowkey.Partition]*knownPart{}, forgotten: map[string]uint64{}, watching: true}
}

// rowWeight is the weight of a row key in the cache: 1, or more if it is long.
func rowWeight(k rowkey.Key) int { return 1 + (len(k.Type)+cql.TagMap{Tags: k.Tags}.Size())/256 }

// holds reports whether the index rows of a row key are known to exist until needSec.
func (c *known) holds(p rowkey.Partition, k rowkey.Key, needSec int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	part := c.parts[p]
	if part == nil {
		return false
	}
	c.order.MoveToFront(part.at)
	expiry, ok := part.rows[k]
	part.held = part.held || ok
	return ok && expiry >= needSec
}

// anyAlive returns an arbitrary known row key of a partition, and whether its index rows live
// beyond sec.
func (c *known) anyAlive(p rowkey.Partition, sec int64) (k rowkey.Key, alive bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if part := c.parts[p]; part != nil {
		for k, expirySec := range part.rows {
			return k, min(expirySec, part.expirySec) > sec
		}
	}
	return k, false
}

// part returns what the row keys of a partition share; ok is false if the partition is not
// known.
func (c *known) part(p rowkey.Partition) (expirySec, changedMS int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	part := c.parts[p]
	if part == nil || len(part.rows) == 0 {
		return 0, 0, false
	}
	return part.expirySec, part.changedMS, true
}

// put adds row keys whose index rows were written to live until expirySec. epoch is the epoch
// at which writing these index rows began.
func (c *known) put(epoch uint64, p rowkey.Partition, expirySec, changedMS int64, rows []Row) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if max(c.all, c.forgotten[p.Metric]) > epoch {
		return
	}
	part := c.partLocked(p)
	if part.rows == nil {
		part.rows = make(map[rowkey.Key]int64, len(rows))
	}
	part.expirySec, part.changedMS, part.held = expirySec, max(part.changedMS, changedMS), true
	for i := range rows {
		k := rows[i].key()
		c.removeLocked(part, part.unsure, k)
		c.addLocked(part, part.rows, k, expirySec)
	}
	c.shrinkLocked()
}

// partLocked returns a partition of the cache, which it adds if it is not there.
func (c *known) partLocked(p rowkey.Partition) *knownPart {
	part := c.parts[p]
	if part == nil {
		part = &knownPart{key: p}
		part.at = c.order.PushFront(part)
		c.parts[p] = part
	}
	return part
}

func (c *known) boundLocked() int {
	if c.watching {
		return c.max + c.max/4
	}
	return c.max
}

// shrinkLocked evicts partitions down to the bound, and row keys of one that exceeds it alone.
func (c *known) shrinkLocked() {
	for c.weight > c.boundLocked() && c.order.Len() > 1 {
		oldest := c.order.Back().Value.(*knownPart)
		c.evictedLocked(oldest, oldest.size())
		c.dropLocked(oldest)
	}
	if c.weight <= c.boundLocked() {
		return
	}
	last := c.order.Front().Value.(*knownPart)
	for _, rows := range []map[rowkey.Key]int64{last.rows, last.unsure} {
		for k := range rows {
			if c.weight <= c.boundLocked() {
				return
			}
			c.evictedLocked(last, 1)
			c.removeLocked(last, rows, k)
		}
	}
}

func (part *knownPart) size() int { return len(part.rows) + len(part.unsure) }

// evictedLocked counts row keys that make room for others.
func (c *known) evictedLocked(part *knownPart, rows int) {
	c.evictions += uint64(rows)
	if c.watching && (part.held || !part.relied.IsZero()) {
		c.unwatched += uint64(rows)
	}
}

// addLocked adds a row key to rows, which are those of part that are known, or the unsure ones.
func (c *known) addLocked(part *knownPart, rows map[rowkey.Key]int64, k rowkey.Key, expirySec int64) {
	if _, there := rows[k]; !there {
		w := rowWeight(k)
		part.weight += w
		c.weight += w
		c.rows++
	}
	rows[k] = expirySec
}

func (c *known) removeLocked(part *knownPart, rows map[rowkey.Key]int64, k rowkey.Key) {
	if _, there := rows[k]; there {
		w := rowWeight(k)
		part.weight -= w
		c.weight -= w
		c.rows--
		delete(rows, k)
	}
}

func (c *known) dropLocked(part *knownPart) {
	c.order.Remove(part.at)
	delete(c.parts, part.key)
	c.weight -= part.weight
	c.rows -= part.size()
}

// forget forgets a span of row times of a metric, or everything.
func (c *known) forget(s rowkey.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, part := range c.parts {
		if s.Has(p) {
			c.forgetLocked(part)
		}
	}
	c.epoch++
	_, again := c.forgotten[s.Metric]
	if s.Metric == "" || !again && len(c.forgotten) == maxForgotten {
		c.all = c.epoch
		clear(c.forgotten)
		return
	}
	c.forgotten[s.Metric] = c.epoch
}

// forgetLocked forgets a partition. Its row keys become unsure if samples rely on them, and were
// written since the last check.
func (c *known) forgetLocked(part *knownPart) {
	if !c.watching || part.relied.IsZero() {
		c.dropLocked(part)
		return
	}
	if part.unsure == nil { // as a rule; nothing is moved, nor takes memory twice
		part.rows, part.unsure = nil, part.rows
	}
	for k, expirySec := range part.rows {
		c.removeLocked(part, part.rows, k)
		c.unsureLocked(part, k, expirySec)
	}
	part.rows = nil
	part.expirySec, part.changedMS, part.held = 0, 0, false
}

func (c *known) unsureLocked(part *knownPart, k rowkey.Key, expirySec int64) {
	if part.unsure == nil {
		part.unsure = map[rowkey.Key]int64{}
	}
	c.addLocked(part, part.unsure, k, expirySec)
}

// now returns the epoch.
func (c *known) now() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch
}

// since returns the metrics of which something was forgotten after an epoch, or that everything
// was, and the present epoch.
func (c *known) since(epoch uint64) (metrics map[string]bool, all bool, now uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	metrics = map[string]bool{}
	for metric, at := range c.forgotten {
		if at > epoch {
			metrics[metric] = true
		}
	}
	return metrics, c.all > epoch, c.epoch
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
		if part := c.parts[p]; part != nil {
			part.held = false
			part.rely(now)
		}
	}
}

func (part *knownPart) rely(now time.Time) {
	if part.relied = now; part.watched.IsZero() {
		part.watched = now
	}
}

// watchFor sets whether a KairosDB node runs or has run recently. If none has, nothing is unsure.
func (c *known) watchFor(nodes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watching && !nodes {
		for _, part := range c.parts {
			c.sureLocked(part)
		}
	}
	c.watching = nodes
	c.shrinkLocked()
}

// mayLose reports whether a KairosDB node may have removed index rows: see watchFor.
func (c *known) mayLose() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.watching
}

// sureLocked removes what is unsure of a partition.
func (c *known) sureLocked(part *knownPart) {
	for k := range part.unsure {
		c.removeLocked(part, part.unsure, k)
	}
	if part.unsure = nil; len(part.rows) == 0 {
		c.dropLocked(part)
	}
}

// due returns the partitions that got samples since their last check, which was at least interval
// ago.
func (c *known) due(now time.Time, interval time.Duration) map[rowkey.Partition]struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	due := map[rowkey.Partition]struct{}{}
	for p, part := range c.parts {
		if !part.relied.IsZero() && passed(part.watched, now, interval) {
			due[p] = struct{}{}
		}
	}
	return due
}

// passed reports whether interval has passed since then, or the clock was set back.
func passed(then, now time.Time, interval time.Duration) bool {
	d := now.Sub(then)
	return d >= interval || d < 0
}

// watch records that a partition is being checked. It returns its row keys, known and unsure, with
// the expiry of their index rows. It removes the unsure ones.
func (c *known) watch(p rowkey.Partition, now time.Time) map[rowkey.Key]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	rows := map[rowkey.Key]int64{}
	if part := c.parts[p]; part != nil {
		part.watched, part.relied = now, time.Time{}
		maps.Copy(rows, part.rows)
		maps.Copy(rows, part.unsure)
		c.sureLocked(part)
	}
	return rows
}

// watchAgain schedules a partition for another check, of these row keys too.
func (c *known) watchAgain(p rowkey.Partition, rows map[rowkey.Key]int64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	part := c.partLocked(p)
	part.rely(now)
	for k, expirySec := range rows {
		if _, known := part.rows[k]; !known {
			c.unsureLocked(part, k, expirySec)
		}
	}
	c.shrinkLocked()
}

// missed returns how many row keys have left before they were checked.
func (c *known) missed() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unwatched
}
