package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"varve/internal/work"
)

// A target is a kind of server that can be measured.
type target interface {
	installable
	// start runs a server in dir, which is empty or has been used by the same
	// target before, and returns when it answers.
	start(ctx context.Context, dir string, how mode) (server, error)
}

// mode says how a server is to differ from its usual settings.
type mode uint8

const (
	usual    mode = iota
	onlyLogs      // keep points out of files, so that a start reads the log
	uncached      // keep no points that were read from Cassandra
	roomy         // provide memory for many points that are not in Cassandra yet
)

// A server is a running target.
type server interface {
	// account is the process to be measured.
	account() *process
	// dataDirs are the directories whose sizes are measured, none if the sizes
	// would mean nothing.
	dataDirs() []string
	// send sends w in the given form, over n connections. It returns
	// errors.ErrUnsupported if the server does not accept that form.
	send(ctx context.Context, w workload, as form, n int) error
	// stored is the number of points that the server reports as accepted.
	stored(ctx context.Context) (int64, error)
	// flush makes sent points visible to queries.
	flush(ctx context.Context) error
	// settle writes everything to files, merges them, and returns when that is
	// done.
	settle(ctx context.Context) error
	// counts is the number of points of each host's series of a metric.
	counts(ctx context.Context, w workload, metric int) (map[string]int64, error)
	// request is a question in the form that the server accepts.
	request(q question) request
	// read parses the answer.
	read(q question, answer []byte) (answer, error)
}

// form is how points are sent.
type form uint8

const (
	asLines   form = iota // put lines
	asJSON                // JSON by HTTP
	asPaths               // Graphite's lines
	asPickles             // Graphite's pickles
)

// targets returns Varve and the requested peers that are installed, and prints
// which are not. peers is a list of names, "all" or "none".
func targets(ctx context.Context, binary, peers string) (found []target, versions map[string]string, err error) {
	versions = make(map[string]string)
	wanted := []target{varveTarget{binary}}
	for _, t := range []target{victoriaTarget{}, influxTarget{}, prometheusTarget{}, clusterTarget{binary}, kairosTarget{}} {
		if peers == "all" || strings.Contains(","+peers+",", ","+t.name()+",") {
			wanted = append(wanted, t)
		}
	}
	for _, t := range wanted {
		version, err := t.version(ctx)
		switch {
		case errors.Is(err, exec.ErrNotFound):
			fmt.Printf("%s is not there: scripts/bench-peers.sh installs all but kairosdb, which needs Java and Maven\n", t.name())
			continue
		case err != nil:
			return nil, nil, fmt.Errorf("version of %s: %w", t.name(), err)
		}
		versions[t.name()] = version
		found = append(found, t)
	}
	return found, versions, nil
}

// An installable is a kind of server.
type installable interface {
	// name is its name in the tables.
	name() string
	// version is the installed version; exec.ErrNotFound if it is not
	// installed.
	version(ctx context.Context) (string, error)
}

// installed returns the installed targets, and prints which are not installed.
func installed[T installable](ctx context.Context, r *run, all ...T) (found []T, err error) {
	for _, t := range all {
		version, err := t.version(ctx)
		if errors.Is(err, exec.ErrNotFound) {
			fmt.Printf("%s is not there and NOT MEASURED\n", t.name())
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("version of %s: %w", t.name(), err)
		}
		if t.name() != varveName {
			fmt.Printf("%s: %s\n", t.name(), version)
		}
		r.book.Versions[t.name()] = version
		r.book.column(t.name())
		found = append(found, t)
	}
	return found, nil
}

// packageVersion is the version of a program according to its Debian package,
// or according to the program itself if it is not from that package.
func packageVersion(ctx context.Context, program, pkg string, args ...string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", err
	}
	// A program outside /usr/bin is not that of the package, even if the package is
	// installed.
	if filepath.Dir(path) == "/usr/bin" {
		if out, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${Version}", pkg).Output(); err == nil && len(out) > 0 {
			return string(out), nil
		}
	}
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line, nil
}

// awaitStored waits until the server reports n stored points.
func awaitStored(ctx context.Context, s server, n int64) error {
	const patience = 30 * time.Second
	var had int64
	for moved := time.Now(); time.Since(moved) < patience; {
		got, err := s.stored(ctx)
		if err != nil {
			return err
		}
		if got >= n {
			return nil
		}
		if got > had {
			had, moved = got, time.Now()
		}
		if err := work.Pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("server has %d of %d points and gets no further in %v:\n%s", had, n, patience, s.account().output.String())
}

// sendAll sends w, and returns when the server reports all of its points as
// stored.
func (r *run) sendAll(ctx context.Context, s server, w workload, as form) error {
	if err := s.send(ctx, w, as, r.connections); err != nil {
		return err
	}
	return awaitStored(ctx, s, w.points())
}

// with starts a server for f and stops it afterwards; a failure of f kills it.
func with(ctx context.Context, t target, dir string, how mode, f func(server) error) error {
	s, err := t.start(ctx, dir, how)
	if err != nil {
		return err
	}
	if err := f(s); err != nil {
		s.account().kill()
		return err
	}
	return s.account().stop()
}

// sendOpenTSDB sends w to an address of OpenTSDB's protocols.
func sendOpenTSDB(ctx context.Context, w workload, as form, n int, addr string) error {
	return inParallel(ctx, w, n, func(ctx context.Context, from, to int) error {
		if as == asJSON {
			return sendPuts(ctx, w, "http://"+addr+"/api/put", from, to)
		}
		return sendLines(ctx, w, addr, from, to)
	})
}

// verify compares the number of points of each series with what was sent.
func verify(ctx context.Context, s server, w workload) error {
	missing, err := missing(ctx, s, w)
	if err == nil && missing > 0 {
		err = fmt.Errorf("%d of %d points are missing", missing, w.points())
	}
	return err
}

// missing returns how many points of w the server does not have, and an error
// if it has too many of any series.
func missing(ctx context.Context, s server, w workload) (int64, error) {
	var missing int64
	for m := range w.metrics() {
		counts, err := s.counts(ctx, w, m)
		if err != nil {
			return 0, err
		}
		for h := range w.hosts {
			n := counts[hostName(h)]
			if n > int64(w.steps) {
				return 0, fmt.Errorf("%s of %s has %d points, %d were sent", metricName(m), hostName(h), n, w.steps)
			}
			missing += int64(w.steps) - n
		}
	}
	return missing, nil
}
