package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"varve/internal/config"
	"varve/internal/model"
	"varve/internal/principal"
	"varve/internal/remote"
	"varve/internal/units"
)

// A line is the command line of a command that takes a few flags of its own,
// and words. It finds the data as serve does: by --data-dir, else --config,
// else the environment.
type line struct {
	flags map[string]string
	all   map[string][]string // the values of flags that may be repeated
	words []string
}

// parseLine splits args. names are the accepted flags. A name that ends in "?" is
// a flag without a value; one that ends in "*" may be repeated.
func parseLine(args []string, names ...string) (line, error) {
	l := line{flags: map[string]string{}, all: map[string][]string{}}
	for len(args) > 0 {
		word := args[0]
		args = args[1:]
		if word == "-h" || word == "-help" || word == "--help" {
			return l, config.ErrHelp
		}
		if !strings.HasPrefix(word, "-") {
			l.words = append(l.words, word)
			continue
		}
		name, value, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
		switch {
		case slices.Contains(names, name+"?") && !hasValue:
			value = "true"
		case !slices.Contains(names, name) && !slices.Contains(names, name+"*"):
			return l, &usageError{fmt.Errorf("flag %s: unknown%s", dashed(name), nearestFlag(name, names))}
		case !hasValue && len(args) == 0:
			return l, &usageError{fmt.Errorf("flag %s: needs a value", dashed(name))}
		case !hasValue:
			value, args = args[0], args[1:]
		}
		if scheme, _, ok := strings.Cut(value, "://"); ok && name == "http-addr" {
			return l, &usageError{fmt.Errorf("flag --http-addr: %q: want host:port, without %s://%s", value, scheme, tlsHint(scheme))}
		}
		l.flags[name] = value
		l.all[name] = append(l.all[name], value)
	}
	return l, nil
}

func nearestFlag(name string, names []string) string {
	var known []string
	for _, n := range names {
		known = append(known, strings.TrimRight(n, "?*"))
	}
	if near := config.Nearest(name, known); near != "" {
		return "; did you mean " + dashed(near) + "?"
	}
	if len(known) == 0 {
		return "; this command takes no flags"
	}
	for i, n := range known {
		known[i] = dashed(n)
	}
	return "; the flags are " + strings.Join(known, ", ")
}

// dashed formats a flag as in the help.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// splitLine splits the args of a command that takes the settings of serve and, in
// addition, flags of its own (see parseLine) and words.
func splitLine(args []string, names ...string) (settings []string, l line, err error) {
	own := make([]string, len(names))
	for i, n := range names {
		own[i] = strings.TrimRight(n, "?*")
	}
	settings, rest := config.Split(args, own...)
	l, err = parseLine(rest, names...)
	return settings, l, err
}

// parseSettings splits the args of inspect and repair: all settings, the flags in
// names (see parseLine), and words. For an embedded store, it refuses the flags
// of settings that these commands do not use.
func parseSettings(t terminal, args []string, names ...string) (config.Config, line, error) {
	settings, l, err := splitLine(args, names...)
	if err != nil {
		return config.Config{}, l, err
	}
	loaded, err := load(t, settings)
	if err != nil {
		return config.Config{}, l, err
	}
	if loaded.Config.Store != config.Cassandra {
		switch key, flag := loaded.SetByFlag("data_dir", "store"); key {
		case "":
		case "server.http_addr":
			return config.Config{}, l, &usageError{fmt.Errorf("flag --%s: inspect and repair work on a stopped store; ask a running server with check, stats or backup", flag)}
		default:
			return config.Config{}, l, &usageError{fmt.Errorf("flag --%s: inspect and repair use it with --store=cassandra only; for an embedded store they take --data-dir and --config", flag)}
		}
	}
	return loaded.Config, l, nil
}

// parseFlags is parseLine for a command that takes no words.
func parseFlags(args []string, names ...string) (line, error) {
	l, err := parseLine(args, names...)
	if err == nil {
		err = l.noWords()
	}
	return l, err
}

// noWords returns an error if there are words.
func (l line) noWords() error {
	if len(l.words) > 0 {
		return &usageError{fmt.Errorf("unexpected argument %q; only flags are allowed", l.words[0])}
	}
	return nil
}

// value reads the value of a flag, if it is given.
func (l line) value(name string, read func(text string) error) error {
	text, given := l.flags[name]
	if !given {
		return nil
	}
	if err := read(text); err != nil {
		return &usageError{fmt.Errorf("flag --%s: %w", name, err)}
	}
	return nil
}

// number reads a whole number within bounds.
func (l line) number(name string, into *int, low, high int) error {
	return l.value(name, func(text string) error {
		n, err := strconv.Atoi(text)
		switch {
		case err == nil && low <= n && n <= high:
			*into = n
			return nil
		case high == math.MaxInt:
			return fmt.Errorf("%q: want a whole number from %d on", text, low)
		}
		return fmt.Errorf("%q: want a whole number from %d to %d", text, low, high)
	})
}

// time reads a time as milliseconds since 1970.
func (l line) time(name string, into *int64) error {
	return l.value(name, func(text string) (err error) { *into, err = parseTime(text); return err })
}

// timeRange reads --start and --end.
func (l line) timeRange() (model.TimeRange, error) {
	within := model.AllTime
	err := cmp.Or(l.time("start", &within.StartMS), l.time("end", &within.EndMS))
	if err == nil && within.EndMS < within.StartMS {
		err = &usageError{fmt.Errorf("end %d is before start %d", within.EndMS, within.StartMS)}
	}
	return within, err
}

// age reads a length of time.
func (l line) age(name string, into *time.Duration) error {
	return l.value(name, func(text string) (err error) { *into, err = parseAge(text); return err })
}

// input opens the file that a flag names, or returns the standard input.
func (l line) input(name string) (*os.File, error) {
	if path := l.flags[name]; path != "" {
		return os.Open(path)
	}
	return os.Stdin, nil
}

func parseWhole(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		err = fmt.Errorf("%q: want a whole number", text)
	}
	return n, err
}

// parseTime reads milliseconds since 1970, a day or a time in RFC 3339.
func parseTime(text string) (int64, error) {
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		return ms, nil
	}
	for _, form := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.Parse(form, text); err == nil {
			return at.UnixMilli(), nil
		}
	}
	return 0, fmt.Errorf("%q: want milliseconds since 1970, or a time like 2026-01-31 or 2026-01-31T12:00:00Z", text)
}

// parseAge reads a time such as 90m, 12h, 30d or 8w.
func parseAge(text string) (time.Duration, error) {
	d, err := units.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q: want a time such as 90m, 12h, 30d or 8w", text)
	}
	return d, nil
}

// dataDir returns the data directory. If the data is in Cassandra, the error says what to do
// instead.
func (l line) dataDir(t terminal, instead string) (string, error) {
	if dir, ok := l.flags["data-dir"]; ok {
		return dir, nil
	}
	var args []string
	if file, ok := l.flags["config"]; ok {
		args = []string{"--config", file}
	}
	loaded, err := load(t, args)
	if err != nil {
		return "", err
	}
	if loaded.Config.Store == config.Cassandra {
		return "", &usageError{fmt.Errorf("the configuration says store: cassandra, and this is for the embedded store. Over Cassandra %s", instead)}
	}
	return loaded.Config.DataDir, nil
}

// refuseCassandra returns an error if the args of a command that needs the embedded
// store select Cassandra.
func refuseCassandra(args []string, instead string) error {
	for i, word := range args {
		name, value, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
		if !strings.HasPrefix(word, "-") {
			continue
		}
		if !hasValue && i+1 < len(args) {
			value = args[i+1]
		}
		if name == "store" && value == config.Cassandra || strings.HasPrefix(name, "cassandra-") {
			return &usageError{fmt.Errorf("flag --%s: this is for the embedded store. Over Cassandra %s", name, instead)}
		}
	}
	return nil
}

// defaultServer is the server that backup, export and import use unless flags or
// the environment name another place.
const defaultServer = "127.0.0.1:8080"

// target chooses the place that an export or import works on: the server that
// --http-addr names, the data directory that --data-dir, --config or the environment
// names, or else the server at defaultServer. It never guesses a directory: the
// command might create it, or use a directory other than the server's.
func (l line) target(t terminal) error {
	for _, flag := range []string{"http-addr", "data-dir", "config"} {
		if _, given := l.flags[flag]; given {
			return l.checkPlace()
		}
	}
	for _, name := range []string{"VARVE_DATA_DIR", "VARVE_CONFIG", "VARVE_KAIROSDB_CONF"} {
		if slices.ContainsFunc(t.environment, func(v string) bool { return strings.HasPrefix(v, name+"=") && v != name+"=" }) {
			return l.checkPlace()
		}
	}
	l.flags["http-addr"] = defaultServer
	return nil
}

// targetHint returns a hint for the end of an error about defaultServer. A refused connection
// already has a hint about --http-addr, and a server that answers is probably the right one.
func targetHint(err error) string {
	const dir = ", --data-dir for the directory of a stopped one"
	switch {
	case errors.As(err, new(*remote.StatusError)):
		return ""
	case errors.Is(err, syscall.ECONNREFUSED):
		return dir
	}
	return "; use --http-addr for another server" + dir
}

// checkPlace checks the flags that select the server or directory of a command.
func (l line) checkPlace() error {
	_, dir := l.flags["data-dir"]
	addr, online := l.flags["http-addr"]
	switch {
	case online && addr == "":
		return &usageError{errors.New("flag --http-addr: needs a value")}
	case online && dir:
		return &usageError{errors.New("flags --http-addr and --data-dir: give one of them; a command works on one place")}
	}
	return l.value("tenant", func(name string) error {
		if !l.online() {
			return errors.New("is for --http-addr; of a stopped server, give the directory of the tenant with --data-dir DATA/tenants/NAME")
		}
		return principal.CheckTenant(name)
	})
}

// server returns the server that the command asks, for the tenant that --tenant names.
func (l line) server() (*remote.Server, error) {
	s, err := remote.New(l.flags["http-addr"])
	if err != nil {
		return nil, &usageError{err}
	}
	s.Tenant = l.flags["tenant"]
	return s, l.checkPlace()
}

// reach checks that the server answers and has the tenant, so that a wrong address or name is
// reported at once.
func (l line) reach(ctx context.Context) (*remote.Server, error) {
	s, err := l.server()
	if err != nil {
		return nil, err
	}
	path := "/api/v1/version"
	if s.Tenant != "" {
		path = "/api/v1/metricnames?limit=1" // the version is the same for all tenants, even those that do not exist
	}
	response, err := s.Ask(ctx, http.MethodGet, path, nil)
	if refused, ok := errors.AsType[*remote.StatusError](err); ok && s.Tenant != "" && refused.Status == http.StatusForbidden {
		return s, nil // this sender may not read, but may still have the right to write
	}
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, targetHint(err))
	}
	return s, response.Body.Close()
}

// online reports whether the command works on a running server.
func (l line) online() bool { return l.flags["http-addr"] != "" }

// tlsHint says how to use TLS, for a user who has given a URL.
func tlsHint(scheme string) string {
	if scheme != "https" {
		return ""
	}
	return "; commands speak TLS if the variable VARVE_CA_FILE names a file with the authority of the server's certificate"
}
