package embedded

import (
	"errors"
	"fmt"
	"slices"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/model"
)

const (
	// denseSamples is the number of samples from which a partition gets a file
	// of its own. Smaller ones share a spill file.
	denseSamples = 16 << 10

	// outputFiles bounds the files that one checkpoint or merge writes at once.
	outputFiles = 48
)

// output writes samples, ordered by series and time, to one file per dense
// partition and one spill file for the rest.
type output struct {
	store     *Store
	level     chunk.Level
	sequence  uint64
	deletions uint64

	dense map[int64]bool // partitions with a file of their own
	files map[int64]*outputFile
	spill *outputFile
	err   error
}

type outputFile struct {
	*blockfile.Writer
	number uint64
	path   string
}

// newOutput plans an output. samples estimates the samples of each partition.
func (s *Store) newOutput(samples map[int64]int64, level chunk.Level, sequence, deletions uint64) *output {
	var starts []int64
	for start, n := range samples {
		if n >= denseSamples {
			starts = append(starts, start)
		}
	}
	slices.SortFunc(starts, func(a, b int64) int { return int(min(1, max(-1, samples[b]-samples[a]))) })
	o := &output{
		store: s, level: level, sequence: sequence, deletions: deletions,
		dense: make(map[int64]bool), files: make(map[int64]*outputFile),
	}
	for _, start := range starts[:min(len(starts), outputFiles)] {
		o.dense[start] = true
	}
	if len(samples) == 1 {
		for start := range samples {
			o.dense[start] = true
		}
	}
	return o
}

// add writes all samples of c, which are one series' next ones, in chunks.
func (o *output) add(series uint32, kind model.Kind, c *model.Columns) error {
	for from := 0; from < c.Len() && o.err == nil; {
		start := o.store.width.Partition(c.Times[from])
		last := o.store.width.PartitionEnd(start)
		to := from + 1
		for to < c.Len() && to-from < chunk.TargetSamples && c.Times[to] <= last {
			to++
		}
		w, err := o.file(start)
		if err == nil {
			err = w.Add(series, kind, c, from, to)
		}
		o.err = err
		from = to
	}
	return o.err
}

func (o *output) file(start int64) (*outputFile, error) {
	if f := o.files[start]; f != nil {
		return f, nil
	}
	if !o.dense[start] {
		if o.spill == nil {
			f, err := o.create()
			if err != nil {
				return nil, err
			}
			o.spill = f
		}
		return o.spill, nil
	}
	f, err := o.create()
	if err != nil {
		return nil, err
	}
	o.files[start] = f
	return f, nil
}

func (o *output) create() (*outputFile, error) {
	number := o.store.nextFile.Add(1)
	path := o.store.filePath(number)
	w, err := blockfile.Create(o.store.fs, path, o.level, o.sequence, o.deletions)
	if err != nil {
		return nil, err
	}
	return &outputFile{w, number, path}, nil
}

func (o *output) all() []*outputFile {
	var all []*outputFile
	for _, f := range o.files {
		all = append(all, f)
	}
	if o.spill != nil {
		all = append(all, o.spill)
	}
	slices.SortFunc(all, func(a, b *outputFile) int { return int(a.number) - int(b.number) })
	return all
}

// abort removes what was written.
func (o *output) abort() {
	for _, f := range o.all() {
		f.Abort()
	}
}

// finish completes the files, makes their names durable, and opens them.
func (o *output) finish() ([]*openFile, error) {
	files := o.all()
	for i, f := range files {
		if o.err == nil {
			_, o.err = f.Finish()
			if o.err == nil {
				continue
			}
		}
		for _, rest := range files[i:] {
			rest.Abort()
		}
		for _, done := range files[:i] {
			o.err = errors.Join(o.err, o.store.fs.Remove(done.path))
		}
		return nil, o.err
	}
	if len(files) == 0 {
		return nil, nil
	}
	if err := o.store.syncBlocks(); err != nil {
		return nil, err
	}
	return o.open(files)
}

func (o *output) open(files []*outputFile) ([]*openFile, error) {
	var opened []*openFile
	for _, f := range files {
		file, err := blockfile.Open(o.store.fs, f.path, f.number, o.store.cache)
		if err != nil {
			for _, done := range opened {
				err = errors.Join(err, done.Close())
			}
			return nil, fmt.Errorf("read back what was just written: %w", err)
		}
		opened = append(opened, &openFile{File: file})
	}
	return opened, nil
}
