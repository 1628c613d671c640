package index

import (
	"cmp"
	"slices"

	"varve/internal/model"
)

// cardinalitySlice is how many entries are counted before the lock is released: about a
// millisecond.
const cardinalitySlice = 32 << 10

// A Cardinality counts the content of an index and lists its largest parts. Each count
// was true at some moment of the call.
type Cardinality struct {
	Series   int // of the requested metric, else of all
	Metrics  int
	TagNames int
	TagPairs int // distinct tag name and value

	TopMetrics []MetricCount // by series
	TopTags    []TagCount    // by distinct values
	TopPairs   []PairCount   // by series
}

// A MetricCount is the number of series of a metric.
type MetricCount struct {
	Metric string `json:"metric"`
	Series int    `json:"series"`
}

// A TagCount is the number of distinct values of a tag.
type TagCount struct {
	Tag    string `json:"tag"`
	Values int    `json:"values"`
}

// A PairCount is the number of series with a value of a tag.
type PairCount struct {
	Tag    string `json:"tag"`
	Value  string `json:"value"`
	Series int    `json:"series"`
}

// Cardinality counts the content of x, or of one metric if metric is not "", and lists
// the limit largest parts. It reads each metric, or each tag value: 10 ms for a
// million, during which it locks the index for a millisecond at a time.
func (x *Index) Cardinality(metric string, limit int) Cardinality {
	if metric != "" {
		return x.metricCardinality(metric, limit)
	}
	x.mu.RLock()
	c := Cardinality{Series: x.series, Metrics: x.names.len(), TagNames: x.keys.len()}
	x.mu.RUnlock()
	c.TopMetrics = x.TopMetrics(limit)
	tags := top[TagCount]{most: limit, compare: compareTags}
	pairs := topPairs(limit)
	x.inSlices(func() int { return len(x.tags) }, func(i int) {
		if t := x.tags[i]; t != nil {
			c.TagPairs += t.values.len()
			tags.add(TagCount{t.name, t.values.len()})
		}
	})
	for i := 0; x.topValues(i, pairs); i++ {
	}
	c.TopTags, c.TopPairs = tags.kept, pairs.kept
	slices.SortFunc(c.TopPairs, comparePairs)
	return c
}

// TopMetrics lists the metrics with the most series.
func (x *Index) TopMetrics(limit int) []MetricCount {
	metrics := top[MetricCount]{most: limit, compare: compareMetrics}
	x.inSlices(func() int { return len(x.metrics) }, func(i int) {
		if m := x.metrics[i]; m != nil {
			metrics.add(MetricCount{x.names.texts[i], x.lists.len(m.ids)})
		}
	})
	return metrics.kept
}

// topValues adds the values of tag number i, and reports whether there can be
// further tags.
func (x *Index) topValues(i int, pairs *top[PairCount]) bool {
	x.mu.RLock()
	known := i < len(x.tags)
	var t *tag
	if known {
		t = x.tags[i]
	}
	x.mu.RUnlock()
	if t != nil {
		x.inSlices(func() int { return len(t.uses) }, func(number int) {
			if n := t.uses[number].series; n > 0 {
				pairs.add(PairCount{t.name, t.values.texts[number], int(n)})
			}
		})
	}
	return known
}

func (x *Index) metricCardinality(name string, limit int) Cardinality {
	x.mu.RLock()
	m, ok := x.metric(name)
	var c Cardinality
	var tags []*tag
	counts := top[TagCount]{most: limit, compare: compareTags}
	pairs := topPairs(limit)
	if ok {
		c.Series, c.Metrics, c.TagNames = x.lists.len(m.ids), 1, m.tags.len()
		c.TopMetrics = []MetricCount{{name, c.Series}}
		for mt := range m.tags.all() {
			c.TagPairs += mt.values.len()
			counts.add(TagCount{mt.tag.name, mt.values.len()})
			tags = append(tags, mt.tag)
		}
	}
	x.mu.RUnlock()
	for _, t := range tags {
		x.inSlices(func() int { return len(t.uses) }, func(number int) {
			// A value has at least as many series in all metrics as in this one.
			if n := t.uses[number].series; n == 0 || pairs.refuses(PairCount{Series: int(n)}) {
				return
			}
			m, ok := x.metric(name)
			if !ok {
				return
			}
			mt := m.tags.get(t.number)
			if mt == nil || mt.tag != t {
				return
			}
			if h, ok := mt.values.get(uint32(number)); ok {
				pairs.add(PairCount{t.name, t.values.texts[number], x.lists.len(h)})
			}
		})
	}
	c.TopTags, c.TopPairs = counts.kept, pairs.kept
	slices.SortFunc(c.TopPairs, comparePairs)
	return c
}

// inSlices calls each for 0, 1 .. n() with the index locked for reading, and releases
// the lock from time to time.
func (x *Index) inSlices(n func() int, each func(i int)) {
	for from, more := 0, true; more; from += cardinalitySlice {
		more = x.slice(from, n, each)
	}
}

func (x *Index) slice(from int, n func() int, each func(i int)) (more bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	to := min(from+cardinalitySlice, n())
	for i := from; i < to; i++ {
		each(i)
	}
	return to < n()
}

// Larger counts come first, then lower names.
func compareMetrics(a, b MetricCount) int {
	return cmp.Or(cmp.Compare(b.Series, a.Series), model.CompareNames(a.Metric, b.Metric))
}

func compareTags(a, b TagCount) int {
	return cmp.Or(cmp.Compare(b.Values, a.Values), model.CompareNames(a.Tag, b.Tag))
}

func comparePairs(a, b PairCount) int {
	return cmp.Or(cmp.Compare(b.Series, a.Series), model.CompareNames(a.Tag, b.Tag), model.CompareNames(a.Value, b.Value))
}

// top keeps the first elements by compare, in order.
type top[T any] struct {
	most    int
	compare func(a, b T) int
	kept    []T
}

// refuses reports whether add would not keep v.
func (t *top[T]) refuses(v T) bool {
	return len(t.kept) == t.most && (t.most == 0 || t.compare(v, t.kept[t.most-1]) >= 0)
}

func (t *top[T]) add(v T) {
	if !t.refuses(v) {
		at, _ := slices.BinarySearchFunc(t.kept, v, t.compare)
		t.kept = slices.Insert(t.kept[:min(len(t.kept), t.most-1)], at, v)
	}
}

// topPairs are the values with the most series. Among values with equally many series
// the choice is arbitrary: usually very many have one.
func topPairs(limit int) *top[PairCount] {
	return &top[PairCount]{most: limit, compare: func(a, b PairCount) int { return cmp.Compare(b.Series, a.Series) }}
}
