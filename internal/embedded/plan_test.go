package embedded

import (
	"fmt"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/blockfile"
	"varve/internal/embedded/partition"
	"varve/internal/model"
)

// planned makes files of one partition and one series, by sequence, range and size.
func planned(all ...[4]int64) (st *state, by map[int64]*openFile) {
	st, by = &state{}, map[int64]*openFile{}
	for _, x := range all {
		f := &openFile{File: &blockfile.File{Series: roaring.BitmapOf(1), Bytes: x[3]}}
		f.Sequence, f.MinMS, f.MaxMS = uint64(x[0]), x[1], x[2]
		f.spanned.Store(partition.Only(0))
		st.files, by[x[0]] = append(st.files, f), f
	}
	return st, by
}

func sequences(files []*openFile) string {
	var all []uint64
	for _, f := range files {
		all = append(all, f.Sequence)
	}
	slices.Sort(all)
	return fmt.Sprint(all)
}

// A merge takes the files that lie between those that it merges, in age and time, and may have a
// newer sample of one of the older ones. Others stay as they are.
func TestClosure(t *testing.T) {
	for name, tc := range map[string]struct {
		files  [][4]int64
		merged []int64
		want   string
	}{
		"nothing":                         {[][4]int64{{1, 0, 9, 1}}, nil, "[]"},
		"one":                             {[][4]int64{{1, 0, 9, 1}, {2, 0, 9, 1}}, []int64{1}, "[1]"},
		"one between":                     {[][4]int64{{1, 0, 9, 1}, {2, 0, 9, 1}, {3, 0, 9, 1}}, []int64{1, 3}, "[1 2 3]"},
		"older":                           {[][4]int64{{1, 0, 9, 1}, {2, 0, 9, 1}, {3, 0, 9, 1}}, []int64{2, 3}, "[2 3]"},
		"newer":                           {[][4]int64{{1, 0, 9, 1}, {2, 0, 9, 1}, {3, 0, 9, 1}}, []int64{1, 2}, "[1 2]"},
		"between, of another time":        {[][4]int64{{1, 0, 9, 1}, {2, 20, 29, 1}, {3, 0, 9, 1}}, []int64{1, 3}, "[1 3]"},
		"between, newer than another one": {[][4]int64{{1, 0, 9, 1}, {2, 9, 15, 1}, {3, 20, 29, 1}}, []int64{1, 3}, "[1 2 3]"},
		"between, of the newest alone":    {[][4]int64{{1, 0, 9, 1}, {2, 20, 29, 1}, {3, 25, 29, 1}}, []int64{1, 3}, "[1 3]"},
		"in turn":                         {[][4]int64{{1, 0, 9, 1}, {2, 9, 19, 1}, {3, 19, 29, 1}, {4, 40, 49, 1}}, []int64{1, 4}, "[1 2 3 4]"},
	} {
		st, by := planned(tc.files...)
		var merged []*openFile
		for _, n := range tc.merged {
			merged = append(merged, by[n])
		}
		if got := sequences((&Store{}).closure(st, merged)); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// The newest files are merged as long as the next older one is at most twice as large as they are together.
func TestSimilar(t *testing.T) {
	for name, tc := range map[string]struct {
		sizes []int64
		least int
		want  string
	}{
		"alike":          {[]int64{1, 1, 1, 1}, 4, "[1 2 3 4]"},
		"too few":        {[]int64{1, 1, 1}, 4, "[]"},
		"a large one":    {[]int64{100, 1, 1, 1, 1}, 4, "[2 3 4 5]"},
		"twice as large": {[]int64{8, 1, 1, 1, 1}, 4, "[1 2 3 4 5]"},
		"more than that": {[]int64{9, 1, 1, 1, 1}, 4, "[2 3 4 5]"},
		"the newest":     {[]int64{1, 100}, 2, "[1 2]"},
	} {
		var files [][4]int64
		for i, size := range tc.sizes {
			files = append(files, [4]int64{int64(i + 1), 0, 9, size})
		}
		st, _ := planned(files...)
		if got := sequences(similar(st.files, tc.least)); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	var many [][4]int64
	for i := range int64(3 * mergeFilesMax) {
		many = append(many, [4]int64{i, 0, 9, 1})
	}
	st, _ := planned(many...)
	if got := similar(st.files, 4); len(got) != mergeFilesMax || got[0] != st.files[0] {
		t.Errorf("%d of many files are merged, want %d, the oldest first", len(got), mergeFilesMax)
	}
	if got := similar(st.files, mergeFilesMax+7); len(got) != mergeFilesMax+7 {
		t.Errorf("%d of many files are merged, want %d", len(got), mergeFilesMax+7)
	}
}

// Of runs that end with the newest file, the longest is merged that needs not more others than itself.
func TestLightest(t *testing.T) {
	// File 2 is of the sparse files' time and not in the group. Merging 1 needs it.
	for size, want := range map[int64]string{4: "[1 2 3 4 5]", 5: "[3 4 5]"} {
		st, by := planned([4]int64{1, 0, 9, 1}, [4]int64{2, 0, 9, size}, [4]int64{3, 0, 9, 1}, [4]int64{4, 0, 9, 1}, [4]int64{5, 0, 9, 1})
		group := []*openFile{by[1], by[3], by[4], by[5]}
		if got := sequences((&Store{}).lightest(st, group, 2)); got != want {
			t.Errorf("with %d bytes beside: %s, want %s", size, got, want)
		}
	}
	st, by := planned([4]int64{1, 0, 9, 1}, [4]int64{2, 0, 9, 99}, [4]int64{3, 0, 9, 1})
	if got := sequences((&Store{}).lightest(st, []*openFile{by[1], by[3]}, 2)); got != "[1 2 3]" {
		t.Errorf("if there is no such run: %s", got)
	}
}

// A file hides samples of an older one of its series, time and partition.
func TestHides(t *testing.T) {
	s := &Store{}
	for name, tc := range map[string]struct {
		change func(f, o *openFile)
		want   bool
	}{
		"newer":              {func(_, _ *openFile) {}, true},
		"older":              {func(f, o *openFile) { f.Sequence, o.Sequence = 1, 2 }, false},
		"of one sequence":    {func(f, o *openFile) { o.Sequence = f.Sequence }, false},
		"buckets":            {func(f, _ *openFile) { f.StepMS = 1000 }, false},
		"of buckets":         {func(_, o *openFile) { o.StepMS = 1000 }, false},
		"both of buckets":    {func(f, o *openFile) { f.StepMS, o.StepMS = 1000, 1000 }, true},
		"of other buckets":   {func(f, o *openFile) { f.StepMS, o.StepMS = 1000, 2000 }, false},
		"of another time":    {func(f, _ *openFile) { f.MinMS, f.MaxMS = 10, 19 }, false},
		"of one time":        {func(f, _ *openFile) { f.MinMS, f.MaxMS = 9, 19 }, true},
		"of other series":    {func(f, _ *openFile) { f.Series = roaring.BitmapOf(2) }, false},
		"of other partition": {func(f, _ *openFile) { f.spanned.Store(partition.Only(1)) }, false},
	} {
		_, by := planned([4]int64{1, 0, 9, 1}, [4]int64{2, 0, 9, 1})
		f, o := by[2], by[1]
		tc.change(f, o)
		if got := s.hides(f, o); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Only together with all older files that they may hide samples of can files give up expired samples.
func TestBeneath(t *testing.T) {
	for name, tc := range map[string]struct {
		files [][4]int64
		of    int64
		want  string
	}{
		"the oldest":         {[][4]int64{{1, 0, 9, 1}, {2, 0, 9, 1}}, 1, "[1]"},
		"one below":          {[][4]int64{{1, 0, 9, 1}, {2, 0, 9, 1}, {3, 0, 9, 1}}, 2, "[1 2]"},
		"all below":          {[][4]int64{{1, 0, 9, 1}, {2, 0, 9, 1}, {3, 0, 9, 1}}, 3, "[1 2 3]"},
		"of another time":    {[][4]int64{{1, 20, 29, 1}, {2, 0, 9, 1}}, 2, "[2]"},
		"below one below it": {[][4]int64{{1, 20, 29, 1}, {2, 9, 20, 1}, {3, 0, 9, 1}}, 3, "[1 2 3]"},
	} {
		st, by := planned(tc.files...)
		if got := sequences((&Store{}).beneath(st, []*openFile{by[tc.of]})); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// A file belongs to a chain of many without that each is compared again and again with all others.
func TestGrowOfAChain(t *testing.T) {
	const n = 100
	var files [][4]int64
	for i := range int64(n) {
		files = append(files, [4]int64{i + 1, 10 * (n - i), 10*(n-i) + 10, 1}) // newer ones are of an earlier time
	}
	st, by := planned(files...)
	compared := map[[2]*openFile]int{}
	chain := st.grow([]*openFile{by[n]}, func(f, to *openFile) bool {
		compared[[2]*openFile{f, to}]++
		return f.Range().Overlaps(to.Range())
	})
	if !slices.Equal(chain, st.files) {
		t.Errorf("%s belong together, want all, the oldest first", sequences(chain))
	}
	for pair, times := range compared {
		if times > 1 {
			t.Fatalf("files %d and %d were compared %d times", pair[0].Sequence, pair[1].Sequence, times)
		}
	}
}

// The widest bucket is looked for among those that may cover a part of a range: they begin in the
// file's range, and reach beyond it by less than their step.
func TestWidestBucket(t *testing.T) {
	file := func(step, from, to int64) *openFile {
		f := &openFile{File: &blockfile.File{}}
		f.StepMS, f.MinMS, f.MaxMS = step, from, to
		return f
	}
	all := []*openFile{file(0, 0, 1_000_000), file(1000, 0, 9000), file(60_000, 120_000, 180_000)}
	s := &Store{}
	s.current = &state{files: all, buckets: true}
	for _, tc := range []struct{ from, to, want int64 }{
		{-100, -1, 0}, {-100, 0, 1000}, {5000, 5000, 1000}, {9999, 20_000, 1000}, {10_000, 20_000, 0}, {9999, 120_000, 60_000}, {10_000, 119_999, 0},
		{180_000, 180_000, 60_000}, {239_999, 300_000, 60_000}, {240_000, 300_000, 0},
	} {
		if got := s.WidestBucket(model.TimeRange{StartMS: tc.from, EndMS: tc.to}); got != tc.want {
			t.Errorf("of %d to %d: %d, want %d", tc.from, tc.to, got, tc.want)
		}
	}
	s.current.buckets = false
	if got := s.WidestBucket(model.AllTime); got != 0 {
		t.Errorf("without buckets: %d", got)
	}
}
