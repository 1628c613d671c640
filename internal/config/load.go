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
	loaded.origins, loaded.KairosDB, loaded.Carbon, loaded.tuned = l.origins, l.kairosDB, l.carbon, l.tuned
	return loaded, nil
}

// load does the work of Load on any configuration struct.
func load(root any, src Sources) (*layers, error) {
	if src.ReadFile == nil {
		src.ReadFile = readFile
	}
	l := newLayers(root)
	args, err := l.parseFlags(src.Args)
	if errors.Is(err, ErrHelp) {
		return nil, err
	}
	if err != nil {
		l.errs = append(l.errs, err)
	}
	if path, origin := filePath(args, src.Environment, kairosFlag, environmentKairos); path != "" {
		data, err := src.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read KairosDB's configuration named by %s: %w", origin, err)
		}
		l.applyKairosDB(path, data, src.Environment)
	}
	if path, origin := filePath(args, src.Environment, carbonFlag, environmentCarbon); path != "" {
		data, err := src.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read carbon's configuration named by %s: %w", origin, err)
		}
		l.applyCarbon(path, data, src.ReadFile)
	}
	if path, origin := filePath(args, src.Environment, fileFlag, environmentFile); path != "" {
		data, err := src.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read the configuration file named by %s: %w", origin, err)
		}
		l.applyFile(path, data)
	}
	l.applyEnvironment(src.Environment)
	l.applyFlags(args)
	l.validate(root)
	return l, l.err()
}

// filePath returns which file the flag or else the variable names, "" for none,
// and who says so.
func filePath(args []argument, environment []string, flag, variable string) (path, origin string) {
	path, origin = fromEnvironment(environment, variable), "environment "+variable
	for _, a := range args {
		if a.name == flag {
			path, origin = a.value, "flag --"+flag
		}
	}
	return path, origin
}
