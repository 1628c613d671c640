package wsp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"varve/internal/clip"
	"varve/internal/graphite/whisper"
	"varve/internal/ingest"
	"varve/internal/ingest/carbon"
	"varve/internal/ingest/kairosjson"
	"varve/internal/model"
	"varve/internal/retention"
	"varve/internal/transfer"
	"varve/internal/work"
)

// maxAhead limits the files in progress, including finished ones that wait for an
// earlier one.
const maxAhead = 1 << 14

// An Import reads the files of a tree and passes their points to sinks.
type Import struct {
	Tree     fs.FS
	Prefix   string               // precedes the path of each file without tags
	Names    map[string]string    // names of series by their hash
	Now      int64                // seconds
	Parallel int                  // files at a time
	After    string               // the file after which to begin; "": the beginning
	Sink     func() transfer.Sink // makes a sink for one worker; nil: only read

	// Done is called for each file, in the order of the tree, after its points are
	// durable. Its error ends the import.
	Done func(*Outcome) error
}

// Run imports all files.
func (m *Import) Run(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	files := make(chan *job, 64)
	q := &queue{ahead: make(chan struct{}, maxAhead), done: m.Done}
	var group work.Group
	run := func(doing string, f func() error) {
		group.Go(doing, func() error {
			err := work.Do(doing, f)
			if err != nil {
				end(err)
			}
			return err
		})
	}
	run("walk a tree of files", func() error {
		defer close(files)
		return walk(ctx, m.Tree, m.After, func(e entry) error { return q.hand(ctx, e, files) })
	})
	for range max(m.Parallel, 1) {
		run("import files", func() error {
			w := &worker{m: m, queue: q}
			if m.Sink != nil {
				w.sink = m.Sink()
			}
			return w.run(ctx, files)
		})
	}
	if err := group.Wait(); err != nil {
		return context.Cause(ctx)
	}
	return nil
}

// A job is a file in progress.
type job struct {
	entry
	finished bool
	Outcome
}

// A queue calls done for files in their order.
type queue struct {
	ahead chan struct{} // one element for each of jobs
	done  func(*Outcome) error

	mu   sync.Mutex
	jobs []*job // passed to workers and not yet to done, in order
}

// hand passes a file to a worker.
func (q *queue) hand(ctx context.Context, e entry, to chan<- *job) error {
	select {
	case q.ahead <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	j := &job{entry: e, Outcome: Outcome{Path: e.path, Bytes: e.size}}
	q.mu.Lock()
	q.jobs = append(q.jobs, j)
	q.mu.Unlock()
	select {
	case to <- j:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// finish marks files as finished. It calls done for each finished file that no
// unfinished file precedes.
func (q *queue) finish(jobs []*job) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, j := range jobs {
		j.finished = true
	}
	for len(q.jobs) > 0 && q.jobs[0].finished {
		if err := q.done(&q.jobs[0].Outcome); err != nil {
			return err
		}
		q.jobs[0] = nil
		q.jobs = q.jobs[1:]
		<-q.ahead
	}
	return nil
}

// A worker reads files and passes their lines to its sink, block by block.
type worker struct {
	m     *Import
	queue *queue
	sink  transfer.Sink

	line    transfer.LineWriter
	columns model.Columns
	arena   []byte
	ends    []int  // offsets at which the lines in arena end
	owners  []*job // the file of each line
	sent    int64  // points in arena
	read    []*job // files of which all lines are in arena or stored
}

// run imports files. It stores its block before it waits for a file: the walk may be
// waiting for the files in that block.
func (w *worker) run(ctx context.Context, files <-chan *job) error {
	for {
		var j *job
		more := true
		select {
		case j, more = <-files:
		default:
			if err := w.store(ctx); err != nil {
				return err
			}
			j, more = <-files
		}
		if !more {
			return w.store(ctx)
		}
		if err := w.file(ctx, j); err != nil {
			return err
		}
	}
}

// errSink marks an error of the sink or of Done, which ends the import. An error of a
// file does not.
type errSink struct{ error }

func (e errSink) Unwrap() error { return e.error }

// file reads a file. Its last points may stay in the block for now.
func (w *worker) file(ctx context.Context, j *job) error {
	if j.fault == nil {
		fault, err := w.points(ctx, j)
		if err != nil {
			return err
		}
		j.fault = fault
	}
	if j.fault != nil {
		j.Faults = append(j.Faults, *j.fault)
	}
	if w.read = append(w.read, j); len(w.read) < transfer.BlockLines {
		return nil
	}
	return w.store(ctx)
}

func (w *worker) points(ctx context.Context, j *job) (*Fault, error) {
	series, fault := w.m.series(j.path)
	if fault != nil {
		return fault, nil
	}
	f, err := w.m.Tree.Open(j.path)
	if err != nil {
		return unreadable(err), nil
	}
	defer f.Close()
	at, ok := f.(io.ReaderAt)
	if !ok {
		return nil, fmt.Errorf("%s: the file system cannot read at an offset", j.path)
	}
	file, err := whisper.Open(at, j.size)
	if err != nil {
		return faultOf(err), nil
	}
	j.Header, j.Series = &file.Header, retention.PathOf(series.Metric, series.Tags)
	w.line.Begin(series)
	left, err := file.History(ctx, w.m.Now, func(_ int, points []whisper.Point) error { return w.add(ctx, j, points) })
	j.Faults = append(j.Faults, faultsOf(left)...)
	sinks := errSink{}
	switch {
	case errors.As(err, &sinks):
		return nil, sinks.error
	case context.Cause(ctx) != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		fault = unreadable(err)
		fault.Text += "; some points of the file are imported"
	}
	return fault, w.take(ctx, j)
}

// add makes lines of points.
func (w *worker) add(ctx context.Context, j *job, points []whisper.Point) error {
	if j.Points == 0 {
		j.First = points[0].Time
	}
	j.Points += int64(len(points))
	j.Last = points[len(points)-1].Time
	if w.sink == nil {
		return nil
	}
	w.columns.Reset()
	for _, p := range points {
		w.columns.AppendFixed(p.Time*1000, math.Float64bits(p.Value), 0)
	}
	for i := range points {
		w.line.Add(&w.columns, i)
		if !w.line.Full() {
			continue
		}
		if err := w.take(ctx, j); err != nil {
			return err
		}
	}
	return nil
}

// take moves the unfinished line into the block, and stores the block if it is full.
func (w *worker) take(ctx context.Context, j *job) error {
	var lines, points int
	if w.arena, lines, points = w.line.Take(w.arena); lines > 0 {
		w.ends, w.owners = append(w.ends, len(w.arena)), append(w.owners, j)
		w.sent += int64(points)
	}
	if len(w.arena) < transfer.BlockBytes && len(w.ends) < transfer.BlockLines {
		return nil
	}
	return w.store(ctx)
}

// store stores the block, and finishes the files that it completes.
func (w *worker) store(ctx context.Context) error {
	if len(w.ends) > 0 {
		if err := w.send(ctx); err != nil {
			return errSink{err}
		}
	}
	w.arena, w.ends, w.owners, w.sent = w.arena[:0], w.ends[:0], w.owners[:0], 0
	err := w.queue.finish(w.read)
	w.read = w.read[:0]
	if err != nil {
		return errSink{err}
	}
	return nil
}

func (w *worker) send(ctx context.Context) error {
	lines := make([][]byte, len(w.ends))
	from := 0
	for i, end := range w.ends {
		lines[i], from = w.arena[from:end-1], end // without the line feed
	}
	ctx, stop := work.Linger(ctx, transfer.Finish)
	defer stop()
	results, err := w.sink.Store(ctx, lines)
	if err != nil {
		return fmt.Errorf("store points of %s: %w", w.owners[0].path, err)
	}
	return w.refused(results)
}

// refused adds a fault to each file of which lines were refused. A sink may count
// points only for the block, so all refused points are added to the first such file.
func (w *worker) refused(results []kairosjson.Line) error {
	stored := int64(0)
	var first *job
	for i, r := range results {
		stored += int64(r.Points)
		if len(r.Faults) == 0 {
			continue
		}
		j := w.owners[i]
		if !slices.ContainsFunc(j.Faults, func(f Fault) bool { return f.Reason == Refused }) {
			j.Faults = append(j.Faults, Fault{Reason: Refused, Text: clip.Text(strings.Join(r.Faults, "; "), maxFaultText)})
		}
		if first == nil {
			first = j
		}
	}
	lost := w.sent - stored
	switch {
	case lost == 0:
	case first == nil:
		return fmt.Errorf("only %d of %d points were stored, and the store gave no reason", stored, w.sent)
	default:
		i := slices.IndexFunc(first.Faults, func(f Fault) bool { return f.Reason == Refused })
		first.Faults[i].Points += lost
	}
	return nil
}

// maxFaultText is the number of bytes of a sink's reasons that a fault repeats.
const maxFaultText = 500

// maxTags limits the tags of a name. Sinks have their own limit.
const maxTags = 1000

func (m *Import) series(file string) (s model.Series, _ *Fault) {
	path, hash, err := whisper.PathOf(file)
	if err != nil {
		return s, &Fault{Reason: BadName, Text: err.Error()}
	}
	if hash != "" {
		if path = m.Names[hash]; path == "" {
			text := "no name in --series has this hash"
			if len(m.Names) == 0 {
				text = "the names of series with tags are needed (--series)"
			}
			return s, &Fault{Reason: Nameless, Text: text}
		}
	} else if !strings.Contains(path, ";") {
		path = m.Prefix + path
	}
	if !utf8.ValidString(path) {
		return s, &Fault{Reason: BadName, Text: "it is not UTF-8"}
	}
	var names ingest.Names
	if f := carbon.ParsePath([]byte(path), &names, maxTags); f != nil {
		return s, &Fault{Reason: BadName, Text: f.Text}
	}
	tags, err := model.NewTags(names.Tags...)
	if err != nil {
		return s, &Fault{Reason: BadName, Text: err.Error()}
	}
	return model.Series{Metric: names.Metric, Tags: tags, Type: model.TypeDouble}, nil
}
