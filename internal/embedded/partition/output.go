package partition

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/model"
	"varve/internal/rowtime"
)

const (
	// DenseSamples is the number of samples from which a partition gets a file
	// of its own. Smaller ones share a spill file.
	DenseSamples = 16 << 10

	// outputFiles bounds the files that one checkpoint or merge writes at once.
	outputFiles = 48
)

// A Place is where a store has its block files.
type Place struct {
	FS    vfs.FS
	Width rowtime.Spec
	Cache *blockfile.Cache

	Next  func() (number uint64, path string) // of a new file
	Sync  func() error                        // makes the names of new files durable
	Space func() error                        // an error when the disk is getting full
}

// A File is a file that was written, open.
type File struct {
	*blockfile.File
	Span *Span
}

// Output writes samples, ordered by series and time, to one file per dense
// partition and one spill file for the rest.
type Output struct {
	place  *Place
	level  chunk.Level
	origin blockfile.Origin

	dense map[int64]bool // partitions with a file of their own
	files map[int64]*outputFile
	spill *outputFile
	err   error

	watch   bool  // end when the disk is getting full
	unasked int64 // bytes of values since the free space was last checked
}

type outputFile struct {
	*blockfile.Writer
	number  uint64
	path    string
	spanned Counts // the partitions of its samples
}

// NewOutput plans an output of partitions with the given numbers of samples.
func (p *Place) NewOutput(counts *Counts, level chunk.Level, origin blockfile.Origin) *Output {
	o := &Output{
		place: p, level: level, origin: origin,
		dense: make(map[int64]bool), files: make(map[int64]*outputFile),
	}
	for _, start := range counts.dense() {
		o.dense[start] = true
	}
	return o
}

// Watch makes o end with the error of Place.Space when the disk is getting full.
// Merges use it, checkpoints do not: they free space of the log.
func (o *Output) Watch() *Output {
	o.watch = true
	return o
}

// Add writes all samples of c, which are the next samples of one series, in
// chunks.
func (o *Output) Add(series model.SeriesNumber, kind model.Kind, c *model.Columns) error {
	for from := 0; from < c.Len() && o.err == nil; {
		start := o.place.Width.Partition(c.Times[from])
		last := o.place.Width.PartitionEnd(start)
		to := from + 1
		for to < c.Len() && to-from < chunk.TargetSamples && c.Times[to] <= last {
			to++
		}
		w, err := o.file(start)
		if err == nil {
			w.spanned.Add(start, 1)
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

func (o *Output) file(start int64) (*outputFile, error) {
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

func (o *Output) create() (*outputFile, error) {
	number, path := o.place.Next()
	w, err := blockfile.Create(o.place.FS, path, o.level, o.origin)
	if err != nil {
		return nil, err
	}
	return &outputFile{Writer: w, number: number, path: path}, nil
}

func (o *Output) all() []*outputFile {
	all := slices.Collect(maps.Values(o.files))
	if o.spill != nil {
		all = append(all, o.spill)
	}
	slices.SortFunc(all, func(a, b *outputFile) int { return int(a.number) - int(b.number) })
	return all
}

// Abort removes the written files.
func (o *Output) Abort() {
	for _, f := range o.all() {
		f.Abort()
	}
}

// lookEvery is the number of bytes of values after which a merge checks the free
// space.
const lookEvery = 4 << 20

// look returns an error when a merge fills the disk: the size of its output was
// only estimated.
func (o *Output) look(kind model.Kind, c *model.Columns, from, to int) error {
	if kind.Variable() {
		o.unasked += int64(c.Offsets[to] - c.Offsets[from])
	}
	o.unasked += 8 * int64(to-from)
	if !o.watch || o.unasked < lookEvery {
		return nil
	}
	o.unasked = 0
	return o.place.Space()
}

// Finish completes the files, makes their names durable, and opens them. After
// an error there are none.
func (o *Output) Finish() ([]File, error) {
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
		o.err = o.place.Sync()
	}
	if o.err == nil {
		var opened []File
		if opened, o.err = o.open(files); o.err == nil {
			return opened, nil
		}
	}
	// No manifest names them. They would stay until the next start, and each
	// retry would add as many.
	for _, f := range files {
		f.Abort() // closes and removes it, unless it is finished
		if err := o.place.FS.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			o.err = errors.Join(o.err, fmt.Errorf("remove unfinished block file: %w", err))
		}
	}
	return nil, o.err
}

func (o *Output) open(files []*outputFile) ([]File, error) {
	var opened []File
	for _, f := range files {
		file, err := blockfile.Open(o.place.FS, f.path, f.number, o.place.Cache)
		if err != nil {
			for _, done := range opened {
				err = errors.Join(err, done.Close())
			}
			return nil, fmt.Errorf("read back what was just written: %w", err)
		}
		opened = append(opened, File{file, f.spanned.Span()})
	}
	return opened, nil
}
