package job

import (
	"context"
	"errors"
	"fmt"
	"io"

	"varve/internal/console"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/units"
)

// An Export writes the points of a source to a file.
type Export struct {
	Source   Source
	Path     string    // compressed if it ends in .gz; "": Stdout
	Stdout   io.Writer // an export to it cannot be resumed
	Append   bool      // keep the content of the file, and append to it
	Recovery string    // the file with the names of finished metrics; "": none
	Only     []string  // metrics; nil: all
	Within   model.TimeRange
	Buckets  store.BucketMode // BucketsAsSamples or WithoutBuckets
	Progress *console.Progress

	Metrics int64    // finished metrics
	Skipped int64    // of these, by earlier runs
	Bytes   int64    // written, before compression
	Unknown []string // metrics of Only that do not exist

	out    *exportFile
	total  int64   // metrics
	share  float64 // fraction of the current metric that is written
	shared bool    // share is known
}

// Resumable reports whether the export has begun and another run can resume where this one ended.
func (e *Export) Resumable() bool { return e.out != nil && e.Recovery != "" && e.Path != "" }

// Run exports what earlier runs have not exported.
func (e *Export) Run(ctx context.Context) (err error) {
	recovery, err := openRecovery(e.Recovery, e.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, recovery.close()) }()
	if e.out, err = openExport(e.Path, e.Stdout, e.Append, len(recovery.done) > 0, e.Recovery != ""); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.out.close()) }()
	if err := recovery.mend(); err != nil {
		return err
	}
	names := e.Only
	if names == nil {
		if names, err = metricsOf(ctx, e.Source, func(string) bool { return true }); err != nil {
			return err
		}
	}
	e.total = int64(len(names))
	for _, name := range names {
		if recovery.done[name] {
			e.Skipped++
			e.Metrics++
			continue
		}
		if err := e.metric(ctx, name); err != nil {
			return err
		}
		e.Metrics++
		if err := recovery.note(name, e.out); err != nil {
			return err
		}
	}
	if err := e.out.begin(); err != nil {
		return err
	}
	return recovery.flush(e.out)
}

// metric exports one metric.
func (e *Export) metric(ctx context.Context, name string) error {
	before := e.Bytes
	e.share, e.shared = 0, false
	if err := e.Source.Export(ctx, name, e.Within, e.Buckets, exportWriter{e}, e.series); err != nil {
		return err
	}
	if e.Only != nil && e.Bytes == before { // nothing in the range, or no such metric
		there, err := e.Source.Has(ctx, name)
		if err != nil {
			return err
		}
		if !there {
			e.Unknown = append(e.Unknown, name)
		}
	}
	return e.out.endMetric()
}

// series records the fraction of the current metric that is written.
func (e *Export) series(series, of int) {
	e.share, e.shared = float64(series)/float64(max(of, 1)), true
}

// showProgress counts in thousandths of a metric, since one metric may hold all
// points. A server does not say how much of a metric it has sent.
func (e *Export) showProgress() {
	const parts = 1000
	total := e.total * parts
	if e.total == 1 && !e.shared {
		total = 0
	}
	e.Progress.Update(e.Skipped*parts, e.Metrics*parts+int64(e.share*parts), total,
		fmt.Sprintf("%d of %d metrics, %s, %s/s", e.Metrics, e.total, units.Bytes(e.Bytes).Text(), units.Bytes(e.Progress.Rate(e.Bytes)).Text()))
}

// An exportWriter writes to the file of an export and shows the progress.
type exportWriter struct{ *Export }

func (w exportWriter) Write(p []byte) (int, error) {
	if err := w.out.begin(); err != nil {
		return 0, err
	}
	n, err := w.out.w.Write(p)
	w.Bytes += int64(n)
	w.showProgress()
	return n, err
}
