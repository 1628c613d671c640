// Package index finds series by metric and tags. It is an in-memory inverted index: for
// each metric and tag pair it has the ids of the series that have it (their postings).
// It knows nothing of time, samples or files; the store adds each series once and
// removes it with its last sample.
//
// # Shape
//
//	names     dictionary of metric names ----> metric: id list, tags
//	tags      dictionary of tag names    ----> tag: dictionary of values
//	                                            (one per tag name, for all metrics)
//	metric.tags   {tag number -> tag, {value number -> id list}}
//
//	id list   handle, 4 bytes: one id | number of a list in postings
//	          list: ascending []uint32, from 1,024 ids on a roaring bitmap
//
// A text exists once however many metrics use it: 20 metrics of 200 hosts hold each
// host name once, and 8 to 14 bytes for each metric and host. Dictionaries are always
// in the order of model.CompareNames (see leaf); a metric has no order of its own, it
// filters the tag names and the tag's values. The cost of a new series depends on its
// own tags, not on how many tags its metric has.
//
// # Invariants
//
//   - A metric, a tag of a metric and a value of a tag exist as long as a series has
//     them: no list and no dictionary entry is ever empty.
//   - An id has at most one value of each tag.
//
// # Concurrency
//
// All methods may be called by many goroutines at once. One lock guards everything; Add
// and Remove hold it for about a microsecond. Select and Names hold it for reading, for
// a few milliseconds at most. No regular expression runs under the lock: values are
// copied some thousand at a time, matched after the lock is released, and looked up
// again (see Select and scan). Appending to known series does not use the index.
package index

import (
	"sync"
	"sync/atomic"

	"varve/internal/model"
)

// Index is an inverted index. Make one with New.
type Index struct {
	mu      sync.RWMutex
	series  int
	mapped  int // tags of metrics that are in maps; see tagTable
	names   dictionary
	metrics []*metric // by number in names
	keys    dictionary
	tags    []*tag // by number in keys
	lists   postings
	scans   scanCache
	read    atomic.Int64
	size    int          // memory outside lists; see Bytes
	bytes   atomic.Int64 // see Bytes
}

// A metric holds the postings of one metric name.
type metric struct {
	ids  handle
	tags *tagTable // noTags if there was none yet
}

// A metricTag is one tag name of one metric.
type metricTag struct {
	tag    *tag
	values valueTable
	series uint32 // of the metric that have the tag

	// The value that Add met last, as a guess for the next one, and its list: the zero
	// handle, which is not listed, after a removal.
	recent    uint32
	recentIDs handle
}

// A tag is one tag name and its values in all metrics.
type tag struct {
	name    string
	number  uint32 // in Index.keys
	metrics int    // metrics that have the tag
	values  dictionary
	uses    []valueUse // by value number
}

// A valueUse counts the metrics and series with one value of a tag.
type valueUse struct{ metrics, series uint32 }

// Approximate heap bytes of the parts, for Stats.
const (
	metricBytes    = 40 + 8
	metricTagBytes = 56
	mappedBytes    = 40 // of a metricTag in a map, besides metricTagBytes
	tagBytes       = 160
	useBytes       = 8 // of a valueUse
	listBytes      = 32
	listedBytes    = 6 // an id in a list, free slots included
)

// New returns an empty index.
func New() *Index { return &Index{} }

// Add adds series s under a number. Adding a known number of the same metric again
// changes nothing. Add does not keep s.
func (x *Index) Add(series model.SeriesNumber, s model.Series) {
	id := uint32(series) // as postings have it
	x.mu.Lock()
	defer x.mu.Unlock()
	m, known := x.metric(s.Metric)
	switch {
	case !known:
		m = x.addMetric(s.Metric, id)
	case x.lists.contains(m.ids, id):
		return
	default:
		m.ids = x.lists.add(m.ids, id)
	}
	x.series++
	defer x.noteBytes()
	place := 0
	for name, value := range s.Tags.All() {
		mt := x.tagOf(m, name, place)
		if mt == nil {
			mt = x.addTag(m, name)
		}
		x.addValue(mt, value, id)
		place++
	}
}

// Remove removes series s, which was added with this number, and names that no other
// series has. An unknown number is not an error.
func (x *Index) Remove(series model.SeriesNumber, s model.Series) {
	id := uint32(series)
	x.mu.Lock()
	defer x.mu.Unlock()
	number, ok := x.names.find(s.Metric)
	if !ok {
		return
	}
	m := x.metrics[number]
	if !x.lists.contains(m.ids, id) {
		return
	}
	x.series--
	defer x.noteBytes()
	for name, value := range s.Tags.All() {
		if mt := x.tagOf(m, name, 0); mt != nil {
			x.removeValue(m, mt, value, id)
		}
	}
	var empty bool
	if m.ids, empty = x.lists.remove(m.ids, id); empty {
		x.size -= metricBytes + stringBytes + len(s.Metric)
		x.metrics[number] = nil
		x.names.remove(number)
	}
}

// Len returns the number of series.
func (x *Index) Len() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.series
}

// Bytes is the approximate memory of x.
func (x *Index) Bytes() int64 { return x.bytes.Load() }

// noteBytes updates Bytes. x.mu must be held.
func (x *Index) noteBytes() {
	x.bytes.Store(int64(x.size + x.lists.count()*listBytes + x.lists.ids*listedBytes + x.mapped*mappedBytes))
}

// EntriesRead is how many entries all calls of Select have read: values compared with a
// matcher, and ids of postings. It shows whether the cost of a selection is
// proportional to the series that it finds, or to all series.
func (x *Index) EntriesRead() int64 { return x.read.Load() }

func (x *Index) metric(name string) (*metric, bool) {
	number, ok := x.names.find(name)
	if !ok {
		return nil, false
	}
	return x.metrics[number], true
}

// addMetric adds a metric with one series without tags. x.mu must be held.
func (x *Index) addMetric(name string, id uint32) *metric {
	x.size += metricBytes + stringBytes + len(name)
	m := &metric{ids: x.lists.one(id), tags: &noTags}
	x.metrics = put(x.metrics, x.names.add(name), m)
	return m
}

// tagOf returns the tag of m called name, or nil. place is a guess of its position.
func (x *Index) tagOf(m *metric, name string, place int) *metricTag {
	if m.tags.many == nil {
		return m.tags.called(name, place)
	}
	number, ok := x.keys.find(name)
	if !ok {
		return nil
	}
	return m.tags.get(number)
}

// addTag adds a tag to m. x.mu must be held.
func (x *Index) addTag(m *metric, name string) *metricTag {
	number, ok := x.keys.find(name)
	if !ok {
		x.size += tagBytes + stringBytes + len(name)
		number = x.keys.add(name)
		x.tags = put(x.tags, number, &tag{name: x.keys.texts[number], number: number})
	}
	t := x.tags[number]
	t.metrics++
	x.size += metricTagBytes
	if m.tags == &noTags {
		m.tags = new(tagTable)
	}
	x.mapped -= len(m.tags.many)
	mt := m.tags.add(t)
	x.mapped += len(m.tags.many)
	return mt
}

// addValue adds id to the postings of a value. x.mu must be held.
func (x *Index) addValue(mt *metricTag, value string, id uint32) {
	mt.series++
	t, number := mt.tag, mt.recent
	if !t.values.is(number, value) {
		var ok bool
		if number, ok = t.values.find(value); !ok {
			x.size += useBytes + stringBytes + len(value)
			number = t.values.add(value)
			t.uses = put(t.uses, number, valueUse{})
		}
	} else if mt.recentIDs&listed != 0 {
		t.uses[number].series++
		x.lists.add(mt.recentIDs, id)
		return
	}
	t.uses[number].series++
	mt.recent, mt.recentIDs = number, 0
	if h, ok := mt.values.get(number); ok {
		if mt.recentIDs = x.lists.add(h, id); mt.recentIDs != h {
			mt.values.set(number, mt.recentIDs)
		}
		return
	}
	mt.values.set(number, x.lists.one(id))
	t.uses[number].metrics++
	x.size += valueBytes
}

// removeValue removes id from the postings of a value of one of m's tags, and whatever
// becomes empty. x.mu must be held.
func (x *Index) removeValue(m *metric, mt *metricTag, value string, id uint32) {
	t := mt.tag
	number, ok := t.values.find(value)
	if !ok {
		return
	}
	h, ok := mt.values.get(number)
	if !ok {
		return
	}
	mt.series--
	t.uses[number].series--
	mt.recentIDs = 0
	now, empty := x.lists.remove(h, id)
	if !empty {
		mt.values.set(number, now)
		return
	}
	mt.values.remove(number)
	x.size -= valueBytes
	if t.uses[number].metrics--; t.uses[number].metrics == 0 {
		x.size -= useBytes + stringBytes + len(value)
		t.values.remove(number)
	}
	if mt.values.len() > 0 {
		return
	}
	x.mapped -= len(m.tags.many)
	m.tags.remove(t)
	x.mapped += len(m.tags.many)
	x.size -= metricTagBytes
	if t.metrics--; t.metrics == 0 {
		x.size -= tagBytes + stringBytes + len(t.name)
		x.keys.remove(t.number)
		x.tags[t.number] = nil
	}
}

// put sets s[number], where number is at most len(s).
func put[T any](s []T, number uint32, v T) []T {
	if int(number) == len(s) {
		return append(s, v)
	}
	s[number] = v
	return s
}
