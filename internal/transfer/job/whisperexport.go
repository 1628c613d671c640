package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"varve/internal/console"
	"varve/internal/graphite/target"
	"varve/internal/model"
	"varve/internal/statefile"
	"varve/internal/transfer/wsp"
	"varve/internal/units"
)

// A WhisperExport writes series of a source as a tree of Whisper's files.
type WhisperExport struct {
	Tree     wsp.Export
	Source   Source
	Only     []target.Glob // paths; nil: all
	Rejected string        // the report of series and samples that are not exported
	Progress *console.Progress

	Files, Metrics int64
	Faulty         map[wsp.Reason]int64 // series that are not exported, or only in part

	// Reported is how many lines the report has: with Tree.Keep also those of earlier runs, because
	// what the kept files lack is still missing.
	Reported int64

	report  statefile.Report
	earlier map[string]bool // lines of earlier runs
}

// CheckEmpty returns an error if the directory of the export is not empty. The directory
// may be missing.
func (j *WhisperExport) CheckEmpty() error {
	d, err := os.Open(j.Tree.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	names, err := d.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%s is not empty, it contains %s; --keep keeps existing files, --replace overwrites them", j.Tree.Dir, names[0])
}

// Run exports all metrics.
func (j *WhisperExport) Run(ctx context.Context) (err error) {
	j.Tree.Done, j.Faulty, j.report.Path = j.done, map[wsp.Reason]int64{}, j.Rejected
	if j.Tree.Keep {
		j.earlier, err = j.report.Lines()
		j.Reported = int64(len(j.earlier))
	} else {
		err = statefile.Remove(j.Rejected)
	}
	if err != nil {
		return err
	}
	if err := j.Tree.Begin(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Tree.End(), j.report.Close()) }()
	names, err := metricsOf(ctx, j.Source, func(name string) bool {
		return j.Only == nil || slices.ContainsFunc(j.Only, func(g target.Glob) bool { return g.Match(name) })
	})
	if err != nil {
		return err
	}
	within := model.TimeRange{StartMS: max(j.Tree.Since(), 0) * 1000, EndMS: j.Tree.Now*1000 + 999}
	for _, name := range names {
		if !j.Tree.Has(name) {
			err := j.Tree.Metric(ctx, func(w io.Writer) error {
				return j.Source.ExportBuckets(ctx, name, within, w)
			})
			if err != nil {
				return err
			}
		}
		j.Metrics++
		j.Progress.Update(0, j.Metrics, int64(len(names)), fmt.Sprintf("%d of %d metrics, %s", j.Metrics, len(names), units.Count(j.Files, "file")))
	}
	return nil
}

func (j *WhisperExport) done(o *wsp.Exported) error {
	if o.File != "" {
		j.Files++
	}
	for _, f := range o.Faults {
		if f.Reason == wsp.IsThere {
			continue // --keep asks for this
		}
		j.Faulty[f.Reason]++
		line := strings.ReplaceAll(fmt.Sprintf("%s: %s: %s", o.Series, f.Reason, f.Text), "\n", `\n`) + "\n" // a name may have line breaks
		if j.earlier[line] {
			continue
		}
		if err := j.report.Add(line); err != nil {
			return err
		}
		j.Reported++
	}
	return nil
}
