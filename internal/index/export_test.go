package index

// Stats is the size of an index.
type Stats struct {
	Series    int
	Metrics   int
	TagNames  int   // distinct
	TagPairs  int   // distinct tag name and value
	Postings  int   // distinct metric, tag name and value
	SizeBytes int64 // of memory, approximate
}

// Stats counts the content of x. Unlike Bytes, it reads each list.
func (x *Index) Stats() Stats {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s := Stats{Series: x.series, Metrics: x.names.len(), TagNames: x.keys.len()}
	size := x.names.size() + x.keys.size() + s.Metrics*metricBytes + s.TagNames*tagBytes
	for _, t := range x.tags {
		if t == nil {
			continue
		}
		s.TagPairs += t.values.len()
		for _, use := range t.uses {
			s.Postings += int(use.metrics)
		}
		size += t.values.size() + 8*cap(t.uses) + t.metrics*metricTagBytes
	}
	size += s.Postings*valueBytes + x.mapped*mappedBytes
	for _, slab := range x.lists.slabs {
		size += cap(slab) * listBytes
		for i := range slab {
			size += 4 * cap(slab[i].ids)
			if slab[i].set != nil {
				size += int(slab[i].set.GetSizeInBytes())
			}
		}
	}
	s.SizeBytes = int64(size)
	return s
}

// size returns the approximate memory in bytes.
func (d *dictionary) size() int {
	size := d.len() * stringBytes
	for _, text := range d.texts {
		size += len(text)
	}
	return size
}
