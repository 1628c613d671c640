package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"varve/internal/admin"
	"varve/internal/diskfs"
	"varve/internal/embedded/datadir"
	"varve/internal/embedded/offline"
	"varve/internal/units"
)

const offlineFlags = `Flags:
  --data-dir DIR   the data directory; without it that of --config, of the environment
                   (VARVE_DATA_DIR), or ./varve-data
  --config FILE    the configuration file of the server
`

// transferFlags are those of import and export, which work on a server unless told
// otherwise.
const transferFlags = `Flags:
  --data-dir DIR   the data directory; without it that of --config or of the environment
                   (VARVE_DATA_DIR), and without these the server at 127.0.0.1:8080
  --config FILE    the configuration file of the server
`

// tenantFlag is for commands that ask a running server about one of its stores.
const tenantFlag = `  --tenant NAME    with --http-addr: the tenant whose store is meant; by default the first
                   one of the token in VARVE_TOKEN, and "default" for a token of all tenants
`

var checkCommand = command{
	name:     "check",
	synopsis: "verify the files of a store",
	usage:    "[--data-dir DIR | --http-addr ADDR [--tenant NAME]] [--rate BYTES]",
	help: `Reads all files of a store, verifies every checksum, and checks that the files agree
with each other. Each finding says what is damaged, what is lost and what to do.
Nothing is changed. The exit status is 0 if no damage is found, 1 if some is.

Stop the server first, or name it with --http-addr: it then checks itself while it
runs, except for files that are being written.

` + offlineFlags + `  --http-addr ADDR ask the server that runs at ADDR, for example 127.0.0.1:8080
` + tenantFlag + `  --rate BYTES     bytes to read per second at most, for example 32MiB; 0 = no limit. By
                   default a running server reads 32MiB per second
`,
	run: check,
}

// errDamaged sets the exit status of a check that has found something.
var errDamaged = errors.New("the store is damaged")

func check(t terminal, args []string) error {
	if err := refuseCassandra(args, admin.InsteadOfCheck); err != nil {
		return err
	}
	l, err := parseFlags(args, "data-dir", "config", "http-addr", "tenant", "rate")
	if err != nil {
		return err
	}
	var rate units.Bytes
	if err := l.value("rate", func(text string) error { return rate.UnmarshalText([]byte(text)) }); err != nil {
		return err
	}
	if err := l.checkPlace(); err != nil {
		return err
	}
	progress := func(p offline.CheckProgress) {
		fmt.Fprintf(t.stderr, "%s: %d of %d MiB\n", p.Doing, p.Bytes>>20, p.Total>>20)
	}
	var report *offline.CheckReport
	if l.online() {
		report, err = checkOnline(l, progress)
	} else {
		report, err = checkOffline(t, l, offline.CheckOptions{BytesPerSecond: int64(rate), Progress: progress})
	}
	if err != nil {
		return err
	}
	if err := report.WriteText(t.stdout); err != nil {
		return err
	}
	if !report.Clean() {
		return errDamaged
	}
	return nil
}

func checkOffline(t terminal, l line, o offline.CheckOptions) (*offline.CheckReport, error) {
	var report *offline.CheckReport
	err := inDirectory(t, l, admin.InsteadOfCheck, func(d *offline.Directory) (err error) {
		report, err = d.Check(context.Background(), o)
		return err
	})
	return report, err
}

// inDirectory calls do with the store that a command line names. instead is the advice for servers over
// Cassandra.
func inDirectory(t terminal, l line, instead string, do func(*offline.Directory) error) error {
	dir, err := l.dataDir(t, instead)
	if err != nil {
		return err
	}
	return withDirectory(dir, do)
}

// withDirectory calls do with the store in a directory, whose server must be stopped.
func withDirectory(dir string, do func(*offline.Directory) error) error {
	d, err := offline.Open(diskfs.Reading, dir)
	if err == nil {
		err = errors.Join(do(d), d.Close())
	}
	return notPermitted(wayOut(err), dir)
}

// wayOut adds advice to the error of a store that is in use or does not exist.
func wayOut(err error) error {
	if locked, ok := errors.AsType[*datadir.LockedError](err); ok {
		return fmt.Errorf("%s is in use by a running server: stop it, or ask it with --http-addr (check, stats, backup)", locked.Dir)
	}
	if errors.Is(err, offline.ErrNoStore) {
		return fmt.Errorf("%w; use --data-dir or --config for another directory, --http-addr for a running server (check, stats, backup)", err)
	}
	return err
}

// checkOnline asks the running server to check itself.
func checkOnline(l line, progress func(offline.CheckProgress)) (*offline.CheckReport, error) {
	path := "/admin/check"
	if rate, ok := l.flags["rate"]; ok {
		path += "?rate=" + url.QueryEscape(rate)
	}
	s, err := l.server()
	if err != nil {
		return nil, err
	}
	response, err := s.Ask(context.Background(), http.MethodPost, path, nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	for lines := json.NewDecoder(response.Body); ; {
		var line admin.CheckLine
		if err := lines.Decode(&line); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("read the answer of the server: %w", err)
		}
		switch {
		case line.Error != "":
			return nil, errors.New(line.Error)
		case line.Report != nil:
			return line.Report, nil
		case line.Progress != nil:
			progress(*line.Progress)
		}
	}
}
