package embedded

import (
	"cmp"
	"context"
	"iter"
	"math"
	"slices"

	"varve/internal/chunk"
	"varve/internal/embedded/partition"
	"varve/internal/model"
)

// sparse stands for the partition of sparse files: those of several partitions, and those with too
// few samples to be worth a file of their own. They are merged with each other across partitions.
// Otherwise one late point in each checkpoint would leave a file for each partition. A partition
// that gathers partition.DenseSamples in this way gets a file of its own.
const sparse = math.MaxInt64

// mergeFilesMax bounds the files of one merge, each of which takes a page of
// memory. A merge has more files if merge_files is greater, or if closure adds
// files.
const mergeFilesMax = 128

// A group is files that are merged with each other: of samples, or of buckets of one
// width.
type group struct {
	stepMS int64
	start  int64 // of the partition, or sparse
}

func (g group) compare(o group) int {
	return cmp.Or(cmp.Compare(g.stepMS, o.stepMS), cmp.Compare(g.start, o.start))
}

// group returns the group of f: that of its partition if it is a dense file, else
// that of sparse files.
func (s *Store) group(f *openFile) group {
	if f.Samples < partition.DenseSamples {
		return group{f.StepMS, sparse}
	}
	return group{f.StepMS, s.partition(f)}
}

// partition returns the start of the only partition that f has samples of, or
// sparse if there are several.
func (s *Store) partition(f *openFile) int64 {
	start := s.width.Partition(f.MinMS)
	if start != s.width.Partition(f.MaxMS-max(0, f.StepMS-1)) {
		return sparse
	}
	return start
}

// due yields sets of files that should be merged now, the most important first.
// Damaged files are not merged, so that their readable part is not lost for good, and
// merges do not fail on the same damage again and again. Older files of the same group
// are not merged either; their number does not grow.
func (st *state) due(s *Store, nowMS int64) iter.Seq[[]*openFile] {
	return func(yield func([]*openFile) bool) {
		groups, order := st.groups(s)
		for _, g := range order {
			run := s.lightest(st, similar(groups[g], s.cfg.MergeFiles), s.cfg.MergeFiles)
			if len(run) > 0 && !anyDamaged(run) && !yield(run) {
				return
			}
		}
		for _, f := range st.files {
			var alone []*openFile
			switch {
			case st.mostlyDeleted(f):
				alone = s.closure(st, []*openFile{f})
			case f.HalfExpiresMS <= nowMS:
				alone = s.closure(st, s.beneath(st, []*openFile{f}))
			}
			if len(alone) > 0 && !anyDamaged(alone) && !yield(alone) {
				return
			}
		}
	}
}

// groups sorts files by group, oldest first. It leaves out files that are older than a
// damaged file of their group. order lists the groups.
func (st *state) groups(s *Store) (groups map[group][]*openFile, order []group) {
	groups = make(map[group][]*openFile)
	for _, f := range st.files {
		g := s.group(f)
		if _, ok := groups[g]; !ok {
			order = append(order, g)
		}
		if f.damage.Load() != nil {
			groups[g] = nil
			continue
		}
		groups[g] = append(groups[g], f)
	}
	slices.SortFunc(order, group.compare)
	return groups, order
}

// similar takes files, the newest first, until one is much larger than all taken ones
// together. It returns none if it has taken fewer than n. So a sample is rewritten a number
// of times that grows with the logarithm of its partition's size.
func similar(files []*openFile, n int) []*openFile {
	var sum int64
	i := len(files)
	for i > 0 && (sum == 0 || files[i-1].Bytes <= 2*sum) {
		i--
		sum += files[i].Bytes
	}
	if len(files)-i < n {
		return nil
	}
	return files[i:min(len(files), i+max(n, mergeFilesMax))]
}

// lightest returns the longest run of at least n files, ending with the newest,
// that needs few others to be merged with it. If there is none, it is all of them.
func (s *Store) lightest(st *state, files []*openFile, n int) []*openFile {
	for i := 0; i+n <= len(files); i++ {
		if all := s.closure(st, files[i:]); sizeOf(all) <= 2*sizeOf(files[i:]) {
			return all
		}
	}
	return s.closure(st, files)
}

func sizeOf(files []*openFile) (n int64) {
	for _, f := range files {
		n += f.Bytes
	}
	return n
}

// grow returns files and, repeatedly, those of st that belong to a returned file, oldest first. A
// file may belong only to files whose time ranges overlap its own. grow compares each pair of files
// at most once, so that a long chain of files does not take long.
func (st *state) grow(files []*openFile, belongs func(f, to *openFile) bool) []*openFile {
	in, found := asSet(files), slices.Clone(files)
	left := slices.DeleteFunc(slices.Clone(st.files), func(f *openFile) bool { return in[f] })
	for fresh := found; len(fresh) > 0; {
		_, span := extent(fresh)
		known := len(found)
		left = slices.DeleteFunc(left, func(f *openFile) bool {
			if !f.Range().Overlaps(span) || !slices.ContainsFunc(fresh, func(to *openFile) bool { return belongs(f, to) }) {
				return false
			}
			found = append(found, f)
			return true
		})
		fresh = found[known:]
	}
	sortFiles(found)
	return found
}

// closure adds the files that must be merged with the given ones. A merge makes
// all its samples as new as its newest file. An older sample must not thereby
// become newer than a sample of the same series and time in a file that is not
// merged.
func (s *Store) closure(st *state, files []*openFile) []*openFile {
	newest, _ := extent(files)
	return st.grow(files, func(f, to *openFile) bool { return f.Sequence <= newest && s.hides(f, to) })
}

// beneath adds the files with older samples that expired samples in files may hide. Expired
// samples can be dropped only if all these files are merged together.
func (s *Store) beneath(st *state, files []*openFile) []*openFile {
	return st.grow(files, func(f, to *openFile) bool { return s.hides(to, f) })
}

// hides reports whether f may have samples, or buckets of one step, of the same series and time
// as the older file o. Files of one sequence never share a series and time: they were written by
// one merge or checkpoint, or closure has kept them apart. Newer buckets may replace those of
// samples that were sent before.
func (s *Store) hides(f, o *openFile) bool {
	return f.StepMS == o.StepMS && o.Sequence < f.Sequence && o.Range().Overlaps(f.Range()) && o.Series.Intersects(f.Series) &&
		s.spanned(o).Intersects(s.spanned(f))
}

// extent returns the sequence of the newest of files, and their range.
func extent(files []*openFile) (newest uint64, span model.TimeRange) {
	span = model.TimeRange{StartMS: math.MaxInt64, EndMS: math.MinInt64}
	for _, f := range files {
		newest = max(newest, f.Sequence)
		span.StartMS, span.EndMS = min(span.StartMS, f.MinMS), max(span.EndMS, f.MaxMS)
	}
	return newest, span
}

func asSet(files []*openFile) map[*openFile]bool {
	set := make(map[*openFile]bool)
	for _, f := range files {
		set[f] = true
	}
	return set
}

const (
	// deletedShare is the share of a file's samples, estimated, from which a
	// file is rewritten to free the space of deleted samples.
	deletedShare = 0.05

	// deletionsMax is the number of deletions from which a file is rewritten
	// so that reads need not consult them.
	deletionsMax = 256
)

// mostlyDeleted estimates whether deletions hide enough of a file to rewrite it.
// Smaller deletions wait for the next merge, so that a stream of small deletes
// does not rewrite everything repeatedly.
func (st *state) mostlyDeleted(f *openFile) bool {
	left, n := st.left(f)
	return left <= 1-deletedShare || n >= deletionsMax
}

// left estimates the share of f's samples that remain after deletions, and
// counts the deletions. It treats overlapping deletions as independent of each
// other.
func (st *state) left(f *openFile) (share float64, n int) {
	share = 1
	for _, d := range st.deletions() {
		if !concerns(d, f.File) {
			continue
		}
		n++
		first, last := max(d.Range.StartMS, f.MinMS), min(d.Range.EndMS, f.MaxMS)
		time := (float64(last) - float64(first) + 1) / (float64(f.MaxMS) - float64(f.MinMS) + 1)
		share *= 1 - time*float64(d.IDs.AndCardinality(f.Series))/float64(f.Series.GetCardinality())
	}
	return share, n
}

// allDeleted reports whether deletions hide every sample of f, apart from
// samples of forgotten series.
func (s *Store) allDeleted(st *state, f *openFile) bool {
	rest := f.Series
	for _, d := range st.deletions() {
		if d.Sequence <= f.Deletions || d.Range.StartMS > f.MinMS || d.Range.EndMS < f.MaxMS || !d.IDs.Intersects(rest) {
			continue
		}
		if rest == f.Series {
			rest = f.Series.Clone()
		}
		rest.AndNot(d.IDs)
	}
	for ids := rest.Iterator(); ids.HasNext(); {
		if s.kindInFiles(model.SeriesNumber(ids.Next())) != 0 {
			return false
		}
	}
	return true
}

// spanned returns the partitions of f. For a file of several, the heads of
// its chunks are read, once while the store is open.
func (s *Store) spanned(f *openFile) *partition.Span {
	if p := f.spanned.Load(); p != nil {
		return p
	}
	var p *partition.Span
	if start := s.partition(f); start != sparse {
		p = partition.Only(start)
	} else {
		p = s.readSpan(f)
	}
	f.spanned.Store(p)
	return p
}

func (s *Store) readSpan(f *openFile) *partition.Span {
	counts := partition.Counts{}
	err := f.Scan(context.Background(), func(e *chunk.Entry) { counts.Add(s.width.Partition(e.FirstMS), 1) })
	if err != nil {
		return partition.Any()
	}
	return counts.Span()
}
