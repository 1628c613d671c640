package embedded

import (
	"errors"
	"fmt"
	"io/fs"
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
	store  *Store
	level  chunk.Level
	origin blockfile.Origin

	dense map[int64]bool // partitions with a file of their own
	files map[int64]*outputFile
	spill *outputFile
	err   error

	watch   bool  // end when the disk is getting full
	unasked int64 // bytes of values since the free space was looked at
}

type outputFile struct {
	*blockfile.Writer
	number  uint64
	path    string
	spanned partitionCounts // the partitions that it has samples of
}

// newOutput plans an output of partitions with the given numbers of samples.
func (s *Store) newOutput(counts *partitionCounts, level chunk.Level, origin blockfile.Origin) *output {
	o := &output{
		store: s, level: level, origin: origin,
		dense: make(map[int64]bool), files: make(map[int64]*outputFile),
	}
	for _, start := range counts.dense() {
		o.dense[start] = true
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
			w.spanned.add(start, 1)
			err = w.Add(series, kind, c, from, to)
		}
		if err == nil {
			err = o.look(kind, c, from, to)
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
	w, err := blockfile.Create(o.store.fs, path, o.level, o.origin)
	if err != nil {
		return nil, err
	}
	return &outputFile{Writer: w, number: number, path: path}, nil
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

// lookEvery is the number of bytes of values after which a merge looks at the free
// space.
const lookEvery = 4 << 20

// look returns an error when a merge fills the disk: the size of its output was
// only estimated.
func (o *output) look(kind model.Kind, c *model.Columns, from, to int) error {
	if kind.Variable() {
		o.unasked += int64(c.Offsets[to] - c.Offsets[from])
	}
	o.unasked += 8 * int64(to-from)
	if !o.watch || o.unasked < lookEvery {
		return nil
	}
	o.unasked = 0
	return o.store.spaceForMore()
}

// finish completes the files, makes their names durable, and opens them. After
// an error there are none.
func (o *output) finish() ([]*openFile, error) {
	files := o.all()
	if len(files) == 0 {
		return nil, o.err
	}
	for _, f := range files {
		if o.err == nil {
			_, o.err = f.Finish()
		}
	}
	if o.err == nil {
		o.err = o.store.syncBlocks()
	}
	if o.err == nil {
		var opened []*openFile
		if opened, o.err = o.open(files); o.err == nil {
			return opened, nil
		}
	}
	// No manifest names them. They would stay until the next start, and each
	// retry would add as many.
	for _, f := range files {
		f.Abort() // closes and removes it, unless it is finished
		if err := o.store.fs.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			o.err = errors.Join(o.err, fmt.Errorf("remove unfinished block file: %w", err))
		}
	}
	return nil, o.err
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
		open := &openFile{File: file}
		open.spanned.Store(f.spanned.span())
		opened = append(opened, open)
	}
	return opened, nil
}

// gatherSamples and gatherBytes bound what a checkpoint or merge holds of one
// series in memory.
const (
	gatherSamples = 16 * chunk.TargetSamples
	gatherBytes   = 4 << 20 // of values of variable kinds
)

// gather collects the samples of one series after another, and adds them to an
// output in full chunks.
type gather struct {
	out  *output
	id   uint32
	kind model.Kind
	cols model.Columns // not added yet; callers append to it
	rest model.Columns
}

// begin starts a series. end must have been called for the series before.
func (g *gather) begin(id uint32, kind model.Kind) {
	g.id, g.kind = id, kind
	g.cols.Reset()
}

func (g *gather) full() bool { return g.cols.Len() >= gatherSamples || len(g.cols.Data) >= gatherBytes }

// flushIfFull adds the collected samples to the output if they are many. It keeps
// back the last chunk's worth, so that the next chunks are full too.
func (g *gather) flushIfFull() error {
	if !g.full() {
		return nil
	}
	cut := g.cols.Len()
	if cut > chunk.TargetSamples && len(g.cols.Data) < gatherBytes {
		cut -= chunk.TargetSamples
	}
	g.rest.Reset()
	g.rest.Append(&g.cols, cut, g.cols.Len())
	head := g.cols.Slice(0, cut)
	err := g.out.add(g.id, g.kind, &head)
	g.cols, g.rest = g.rest, g.cols
	return err
}

// end adds what is left.
func (g *gather) end() error { return g.out.add(g.id, g.kind, &g.cols) }
