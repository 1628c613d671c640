package partition

import (
	"cmp"
	"maps"
	"slices"
)

// spannedMax is the number of partitions of a file that are remembered.
const spannedMax = 8192

// A Span lists the partitions that a file has samples of.
type Span struct {
	starts []int64 // ascending
	any    bool    // the partitions are too many to list, or unreadable
}

// Only returns the span of a single partition.
func Only(start int64) *Span { return &Span{starts: []int64{start}} }

// Any returns the span of a file that may have samples of any partition.
func Any() *Span { return &Span{any: true} }

// Intersects reports whether both may list the same partition.
func (p *Span) Intersects(o *Span) bool {
	if p.any || o.any {
		return true
	}
	small, large := p.starts, o.starts
	if len(small) > len(large) {
		small, large = large, small
	}
	for _, start := range small {
		i, found := slices.BinarySearch(large, start)
		if found {
			return true
		}
		large = large[i:]
	}
	return false
}

// Counts counts samples by partition, in bounded memory: when there are
// too many partitions, those with few samples are forgotten. Only partitions
// that are worth a file of their own matter.
type Counts struct {
	samples map[int64]int64
	pruned  bool
}

// countedMax is the number of partitions from which small ones are forgotten.
const countedMax = 1 << 16

// Add counts n samples of the partition that begins at start.
func (p *Counts) Add(start, n int64) {
	if p.samples == nil {
		p.samples = make(map[int64]int64)
	}
	p.samples[start] += n
	if len(p.samples) < countedMax {
		return
	}
	p.pruned = true
	for least := int64(2); len(p.samples) > countedMax/2; least *= 2 {
		for start, n := range p.samples {
			if n < least {
				delete(p.samples, start)
			}
		}
	}
}

// Span lists the partitions counted.
func (p *Counts) Span() *Span {
	if p.pruned || len(p.samples) > spannedMax {
		return Any()
	}
	return &Span{starts: slices.Sorted(maps.Keys(p.samples))}
}

// dense returns the partitions to give files of their own, at most outputFiles,
// the largest first. A partition that is the only one is dense.
func (p *Counts) dense() []int64 {
	var starts []int64
	for start, n := range p.samples {
		if n >= DenseSamples || len(p.samples) == 1 && !p.pruned {
			starts = append(starts, start)
		}
	}
	slices.SortFunc(starts, func(a, b int64) int { return cmp.Compare(p.samples[b], p.samples[a]) })
	return starts[:min(len(starts), outputFiles)]
}
