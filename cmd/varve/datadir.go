package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/config"
	"varve/internal/diskfs"
	"varve/internal/embedded"
	"varve/internal/embedded/datadir"
	"varve/internal/retention"
)

// holdsStore returns an error if dir holds no store and none may be created there:
// a mistyped path must not become a store. write reports that the command could create
// one.
func holdsStore(dir string, write, create bool) error {
	if _, err := os.Stat(filepath.Join(dir, "catalogue")); err == nil {
		return nil
	}
	entries, err := os.ReadDir(dir)
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return notPermitted(err, dir)
	case !create:
		wayOut := "use --data-dir or --config for another directory, --http-addr for a running server"
		if write {
			wayOut += ", --create to create a store there"
		}
		return fmt.Errorf("%s holds no store; %s", dir, wayOut)
	}
	for _, e := range entries {
		switch name := e.Name(); name {
		case "lost+found", datadir.LockFile, datadir.Blocks: // Open creates the last two before the catalogue
		default:
			return fmt.Errorf("%s holds no store, but %s: a new store needs a directory of its own", dir, name)
		}
	}
	return nil
}

// settings returns the flags that name the data directory and the configuration.
func (l line) settings() (args []string) {
	for _, name := range []string{"config", "data-dir"} {
		if value, ok := l.flags[name]; ok {
			args = append(args, "--"+name, value)
		}
	}
	return args
}

// fatal returns a function that ends a command whose store cannot be written.
func fatal(t terminal) func(reason string) {
	return func(reason string) {
		fmt.Fprintf(t.stderr, "varve: %s; free space on the disk, or repair it, then run the same command again\n", reason)
		os.Exit(1)
	}
}

// openStore opens the data directory for writing or only for reading. Without
// create, the directory must hold a store already.
func (l line) openStore(t terminal, write, create bool) (*embedded.Store, config.Config, error) {
	loaded, err := load(t, l.settings())
	if err != nil {
		return nil, config.Config{}, err
	}
	c := loaded.Config
	if c.Store == config.Cassandra {
		return nil, c, &usageError{errors.New("the configuration says store: cassandra; go through a running server, with --http-addr")}
	}
	c.Log.Level = max(c.Log.Level, slog.LevelWarn) // people watch the progress, not the log
	if err := holdsStore(c.DataDir, write, create); err != nil {
		return nil, c, err
	}
	o := embedded.Options{Section: "embedded", Registerer: prometheus.NewRegistry(), Logger: c.Log.Logger(t.stderr, c.Log.Level), Fatal: fatal(t), EndWhenFull: true}
	if o.RulesUnknown = !c.Retention.Enforce; !o.RulesUnknown { // the rules are known; without rules, a bucket is shown as its average
		book, err := c.Book(o.Logger)
		if err != nil {
			return nil, c, err
		}
		o.Book = retention.NewShelf(book.For(c.TenantOf(c.DataDir)))
	}
	var s *embedded.Store
	if write {
		s, err = embedded.Open(diskfs.Data, c.DataDir, c.Embedded, o)
	} else {
		s, err = embedded.OpenToRead(diskfs.Reading, c.DataDir, c.Embedded, o)
	}
	if _, ok := errors.AsType[*datadir.LockedError](err); ok {
		return nil, c, fmt.Errorf("%w; or go through the server that uses it, with --http-addr", err)
	}
	return s, c, notPermitted(err, c.DataDir)
}
