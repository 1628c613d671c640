package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/auth"
	"varve/internal/config"
	"varve/internal/console"
	"varve/internal/ingest"
	"varve/internal/kairos"
	"varve/internal/kairos/agg"
	"varve/internal/query"
	"varve/internal/remote"
	"varve/internal/rollup"
	"varve/internal/transfer"
	"varve/internal/transfer/job"
	"varve/internal/units"
)

var importCommand = command{
	name:     "import",
	synopsis: "read points from an export of KairosDB or Varve",
	usage:    "[-f FILE] [--http-addr ADDR [--tenant NAME] | --data-dir DIR] [FLAGS]",
	help: `Reads lines of JSON, each with a metric or an array of them, as KairosDB's export writes
them; compressed with gzip or not. The points go to the server at --http-addr, or into the
data directory that --data-dir, --config or the environment names. No server may be using
that directory. Without any of these, the points go to the server at 127.0.0.1:8080.

To continue an interrupted import, run the same command again. A line that cannot
be stored completely is reported with its number and the reason; the other lines are stored.
Importing a line twice does no harm, except for buckets of retention rules: see
--without-buckets of varve export. varve import whisper reads Graphite's files.

Exit status: 0 all is stored, 1 the import could not be completed, 2 wrong command line,
3 the import is complete, but lines were rejected.

` + transferFlags + `  --http-addr ADDR send the points to the server at ADDR
` + tenantFlag + `  --create         create a store if the data directory has none
  -f FILE          read FILE instead of standard input
  --state FILE     where to record the progress; by default FILE.state of -f
  --rejected FILE  where to report lines that were rejected; FILE.rejected of -f without
                   it, or standard error
`,
	run: importFile,
}

func importFile(t terminal, args []string) error {
	l, err := parseFlags(args, "data-dir", "config", "http-addr", "tenant", "create?", "f", "state", "rejected")
	if err != nil {
		return err
	}
	if err := l.target(t); err != nil {
		return err
	}
	in, err := l.input("f")
	if err != nil {
		return err // before a store is opened or created
	}
	defer in.Close()
	ctx, restore := interruptible()
	defer restore()
	to, err := l.importTarget(ctx, t)
	if err != nil {
		return err
	}
	j := &job.Import{In: in, Path: l.flags["f"], State: l.flags["state"], Rejected: l.flags["rejected"], To: l.place(to.config),
		Empty: to.empty, Sink: to.sink(), MaxLine: int(to.config.Transfer.MaxLine), Stderr: t.stderr, Progress: console.NewProgress(t.stderr, time.Now)}
	at, err := j.Run(ctx)
	j.Progress.Clear()
	if err = interrupted(ctx, errors.Join(err, to.close())); err != nil {
		if j.State != "" && at.Line > 0 {
			err = fmt.Errorf("%w; %d lines are imported; to continue, run the same command again", err, at.Line)
		}
		return err
	}
	fmt.Fprintf(t.stderr, "%s, %s in %s\n", units.Count(at.Line, "line"), units.Count(at.Points, "point"), j.Progress.Elapsed())
	fmt.Fprintln(t.stdout, "Import finished\nAll done")
	return leftOut(at.Rejected, "line", "rejected", j.Rejected)
}

// place names the destination of an import, for its state file. A server may have many tenants:
// --tenant, or else the token, says which one it is.
func (l line) place(c config.Config) string {
	if l.online() {
		to := "http://" + remote.Dialable(l.flags["http-addr"])
		if name, ok := l.flags["tenant"]; ok {
			to += "/t/" + name
		}
		if id, ok := auth.IDOf(remote.Token()); ok {
			to += " with the token " + id
		}
		return to
	}
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return c.DataDir
	}
	return dir
}

// An importTarget is the destination of points.
type importTarget struct {
	sink   func() transfer.Sink // makes a sink for one goroutine
	empty  job.Empty
	config config.Config
	close  func() error
}

func (l line) importTarget(ctx context.Context, t terminal) (*importTarget, error) {
	if l.online() {
		s, err := l.reach(ctx)
		if err != nil {
			return nil, err
		}
		to := job.Remote{Server: s}
		return &importTarget{func() transfer.Sink { return to }, to.Empty, config.Default(), func() error { return nil }}, nil
	}
	_, create := l.flags["create"]
	s, c, err := l.openStore(t, true, create)
	if err != nil {
		return nil, err
	}
	pipeline := ingest.New(s, c.Ingest, ingest.Options{Registerer: prometheus.NewRegistry()})
	engine := agg.New(query.New(s, c.Query, prometheus.NewRegistry(), time.Now), nil)
	api := kairos.New(s, engine, c.Kairos, versionText(), time.Now) // parses the tasks of roll-ups
	if err := rollup.Watch(context.Background(), s, pipeline, api, c.Rollups); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &importTarget{func() transfer.Sink { return transfer.NewLocal(pipeline, "varve import") }, job.Local{Store: s}.Empty, c, s.Close}, nil
}
