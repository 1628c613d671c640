package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"varve/internal/console"
	"varve/internal/statefile"
	"varve/internal/transfer"
	"varve/internal/transfer/wsp"
	"varve/internal/units"
)

// A WhisperImport reads a tree of Whisper files into sinks.
type WhisperImport struct {
	Root     string
	Prefix   string               // precedes the path of each file without tags
	Names    map[string]string    // names of series by their hash
	Parallel int                  // files at a time
	State    string               // the state file
	Rejected string               // the report of faults; a dry run prints them to Stderr
	To       string               // the name of the destination
	Empty    Empty                // whether the destination is empty; nil: not known
	Sink     func() transfer.Sink // makes a sink for one goroutine
	Proposal *wsp.Proposal        // not nil: a dry run, which stores nothing

	Stderr   io.Writer
	Progress *console.Progress

	First, Last int64 // times of the first and last imported points, in seconds

	job    wsp.Import
	state  whisperState
	saved  time.Time
	report statefile.Report
	bytes  int64        // of finished files
	total  atomic.Int64 // bytes of all files, 0 until they are counted
}

// A whisperState is the content of a state file.
type whisperState struct {
	Root     string     `json:"root"`
	Prefix   string     `json:"prefix"`
	To       string     `json:"to"`
	After    string     `json:"after"`    // everything up to this file is stored or reported
	Reported int64      `json:"reported"` // bytes of the report
	Totals   wsp.Totals `json:"totals"`
}

// Totals is what all runs have imported so far.
func (j *WhisperImport) Totals() *wsp.Totals { return &j.state.Totals }

// Resumable reports whether another run can resume where this one ended.
func (j *WhisperImport) Resumable() bool { return j.Proposal == nil && j.state.After != "" }

// Run imports what earlier runs have not imported.
func (j *WhisperImport) Run(ctx context.Context) (err error) {
	j.state.Root, j.state.Prefix, j.state.To, j.report.Path = j.Root, j.Prefix, j.To, j.Rejected
	j.job = wsp.Import{Tree: os.DirFS(j.Root), Prefix: j.Prefix, Names: j.Names, Now: time.Now().Unix(), Parallel: j.Parallel, Sink: j.Sink, Done: j.done}
	if j.Proposal == nil {
		lock, err := statefile.Lock(j.State, otherState)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, lock.Close()) }()
		if err := j.resume(ctx); err != nil {
			return err
		}
		if err := statefile.Write(j.State, &j.state); err != nil { // so that an unwritable state file is an error before the first file is imported
			return fmt.Errorf("%w; %s", err, otherState)
		}
		defer func() { err = errors.Join(err, j.report.Close()) }()
	}
	ctx, stop := context.WithCancel(ctx)
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		if bytes, err := wsp.Size(ctx, j.job.Tree, j.job.After); err == nil { // otherwise progress has no estimate
			j.total.Store(bytes)
		}
	}()
	err = j.job.Run(ctx)
	stop()
	<-counted
	if j.Proposal != nil {
		return err
	}
	if err != nil {
		return errors.Join(err, j.save())
	}
	return statefile.Remove(j.State)
}

// resume reads the state that an interrupted import of the same files has left.
func (j *WhisperImport) resume(ctx context.Context) error {
	was := whisperState{}
	found, err := statefile.Read(j.State, &was)
	if err != nil {
		return err
	}
	if !found {
		return statefile.Remove(j.Rejected) // left by an earlier import
	}
	if was.Root != j.Root || was.Prefix != j.Prefix {
		return fmt.Errorf("%s belongs to an import of %s with the prefix %q; remove it to begin again", j.State, was.Root, was.Prefix)
	}
	if was.To != j.To {
		return elsewhere(j.State, was.To, j.To, "files")
	}
	if err := j.Empty.check(ctx, j.State, was.Totals.Points, j.To); err != nil {
		return err
	}
	j.state, j.job.After, j.report.At = was, was.After, was.Reported
	if was.After != "" {
		fmt.Fprintf(j.Stderr, "continuing after %s; %s done\n", was.After, units.Count(was.Totals.Files, "file"))
	}
	return nil
}

// stateEvery is how often the state of an import of files is written.
const stateEvery = time.Second

// done records the outcome of a file.
func (j *WhisperImport) done(o *wsp.Outcome) error {
	j.state.Totals.Add(o)
	j.state.After = o.Path
	j.bytes += o.Bytes
	if o.Points > 0 && (j.First == 0 || o.First < j.First) {
		j.First = o.First
	}
	j.Last = max(j.Last, o.Last)
	if j.Proposal != nil && o.Header != nil {
		j.Proposal.Add(o.Series, o.Header)
	}
	for _, f := range o.Faults {
		if err := j.fault(o.Path, f); err != nil {
			return err
		}
	}
	n := j.state.Totals
	j.Progress.Update(0, j.bytes, j.total.Load(), fmt.Sprintf("%d files, %d points, %s, %s/s, %d files with faults",
		n.Files, n.Points, units.Bytes(j.bytes).Text(), units.Bytes(j.Progress.Rate(j.bytes)).Text(), wsp.Sum(n.Faulty)))
	if j.Proposal != nil || time.Since(j.saved) < stateEvery {
		return nil
	}
	return j.save()
}

func (j *WhisperImport) fault(path string, f wsp.Fault) error {
	text := fmt.Sprintf("%s: %s: %s\n", path, f.Reason, f.Text)
	if j.Proposal == nil {
		return j.report.Add(text)
	}
	j.Progress.Clear()
	_, err := io.WriteString(j.Stderr, text)
	return err
}

func (j *WhisperImport) save() error {
	if j.state.After == "" {
		return nil
	}
	j.saved, j.state.Reported = time.Now(), j.report.At
	return statefile.Write(j.State, &j.state)
}
