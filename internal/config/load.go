package config

import (
	"errors"
	"fmt"
)

// Sources are what a configuration is loaded from.
type Sources struct {
	Args        []string // flags
	Environment []string // name=value, as os.Environ gives them

	// ReadFile reads the configuration files; nil means from disk.
	ReadFile func(path string) ([]byte, error)
}

// Load applies defaults, files, environment and flags and validates the result.
// The error holds all problems that were found, one per line, or is ErrHelp.
func Load(src Sources) (*Loaded, error) {
	loaded := &Loaded{Config: Default()}
	l, err := load(&loaded.Config, src)
	if err != nil {
		return nil, err
	}
	loaded.origins, loaded.Foreign, loaded.tuned = l.origins, l.foreign, l.tuned
	return loaded, nil
}

// load does the work of Load on any configuration struct.
func load(root any, src Sources) (*layers, error) {
	if src.ReadFile == nil {
		src.ReadFile = readFile
	}
	l := newLayers(root)
	l.src = src
	args, err := l.parseFlags(src.Args)
	if errors.Is(err, ErrHelp) {
		return nil, err
	}
	if err != nil {
		l.errs = append(l.errs, err)
	}
	for _, file := range []struct {
		flag, doing string
		apply       func(path string, data []byte)
	}{
		{kairosFlag, "read KairosDB's configuration named by", l.applyKairosDB},
		{carbonFlag, "read carbon's configuration named by", l.applyCarbon},
		{fileFlag, "read the configuration file named by", l.applyFile},
	} {
		path, origin := filePath(args, src.Environment, file.flag)
		if path == "" {
			continue
		}
		data, err := src.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", file.doing, origin, err)
		}
		file.apply(path, data)
	}
	l.applyEnvironment(src.Environment)
	l.applyFlags(args)
	l.validate(root)
	return l, l.err()
}

// filePath returns the file that a flag, or else its variable, names, "" for none, and which
// of the two named it.
func filePath(args []argument, environment []string, flag string) (path, origin string) {
	path, origin = fromEnvironment(environment, variableOf(flag)), "environment "+variableOf(flag)
	for _, a := range args {
		if a.name == flag {
			path, origin = a.value, flagOrigin+flag
		}
	}
	return path, origin
}
