package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"varve/internal/admin"
	"varve/internal/config"
)

// A line is the command line of a command that takes a few flags of its own and
// words. It knows where the data is as serve does: --data-dir, else --config,
// else the environment.
type line struct {
	flags map[string]string
	all   map[string][]string // the values of flags that may be repeated
	words []string
}

// parseLine splits args. names are the flags that are taken. Those that end in "?"
// have no value, those that end in "*" may be repeated.
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
			return l, &usageError{fmt.Errorf("flag --%s: unknown%s", name, nearestFlag(name, names))}
		case !hasValue && len(args) == 0:
			return l, &usageError{fmt.Errorf("flag --%s: needs a value", name)}
		case !hasValue:
			value, args = args[0], args[1:]
		}
		if scheme, _, ok := strings.Cut(value, "://"); ok && name == "http-addr" {
			return l, &usageError{fmt.Errorf("flag --http-addr: %q: want host:port, without %s://", value, scheme)}
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
		return "; did you mean --" + near + "?"
	}
	return "; --" + strings.Join(known, ", --") + " are taken"
}

// parseSettings splits the args of inspect and repair: all settings, names beside
// them (see parseLine), and words. For an embedded store, it refuses the flags of
// settings that these commands do not use.
func parseSettings(t terminal, args []string, names ...string) (config.Config, line, error) {
	settings, rest := config.Split(args)
	l, err := parseLine(rest, names...)
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

// noWords returns an error if there are words.
func (l line) noWords() error {
	if len(l.words) > 0 {
		return &usageError{fmt.Errorf("argument %q: not a flag, and no other arguments are taken", l.words[0])}
	}
	return nil
}

// dataDir returns where the data is.
func (l line) dataDir(t terminal) (string, error) {
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
		return "", errNotEmbedded
	}
	return loaded.Config.DataDir, nil
}

// refuseCassandra returns an error if args, of a command for the embedded store only,
// lead to Cassandra.
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

// errNotEmbedded is the answer of commands that are for the embedded store only.
var errNotEmbedded = &usageError{errors.New("the configuration says store: cassandra, and this is for the embedded store. " +
	"For check: " + admin.InsteadOfCheck + ". For stats: " + admin.InsteadOfStats + ". For backup: " + admin.InsteadOfBackup)}

// defaultServer is the server that backup, export and import use unless flags or
// the environment name another place.
const defaultServer = "127.0.0.1:8080"

// target chooses the place that an export or import works on: the server that
// --http-addr names, the data directory that --data-dir, --config or the environment
// names, else the server at defaultServer. It never guesses a directory: the command
// would create it, or use another one than the server's.
func (l line) target(t terminal) error {
	_, dir := l.flags["data-dir"]
	_, file := l.flags["config"]
	addr, online := l.flags["http-addr"]
	switch {
	case online && addr == "":
		return &usageError{errors.New("flag --http-addr: needs a value")}
	case online && dir:
		return &usageError{errors.New("flags --http-addr and --data-dir: give one of them; a command works on one place")}
	case online, dir, file:
		return nil
	}
	for _, name := range []string{"VARVE_DATA_DIR", "VARVE_CONFIG", "VARVE_KAIROSDB_CONF"} {
		if slices.ContainsFunc(t.environment, func(v string) bool { return strings.HasPrefix(v, name+"=") && v != name+"=" }) {
			return nil
		}
	}
	l.flags["http-addr"] = defaultServer
	return nil
}

// targetHint ends the error of a server that cannot be reached.
const targetHint = "; --http-addr names another server, --data-dir the directory of a server that is stopped"

// reach checks that the server answers, so that a wrong address is reported at once.
func (l line) reach() error {
	response, err := l.call(http.MethodGet, "/api/v1/version", nil)
	if err != nil {
		return fmt.Errorf("%w%s", err, targetHint)
	}
	return response.Body.Close()
}

// online reports whether the command is about a running server.
func (l line) online() bool { return l.flags["http-addr"] != "" }

// call sends a request to the running server. The caller closes the answer's
// body. An answer that is not 200 is an error with the server's message.
func (l line) call(method, path string, body any) (*http.Response, error) {
	var send io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		send = bytes.NewReader(text)
	}
	addr := dialable(l.flags["http-addr"])
	response, err := ask(context.Background(), method, addr, path, "", send)
	if err != nil {
		return nil, fmt.Errorf("ask the server at %s: %w", addr, err)
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer response.Body.Close()
	var refusal struct{ Errors []string }
	if err := json.NewDecoder(io.LimitReader(response.Body, 64<<10)).Decode(&refusal); err != nil || len(refusal.Errors) == 0 {
		return nil, fmt.Errorf("the server at %s answers %s", addr, response.Status)
	}
	return nil, errors.New(strings.Join(refusal.Errors, "\n"))
}
