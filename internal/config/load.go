package config

import (
	"errors"
	"fmt"
)

// Sources are what a configuration is loaded from.
type Sources struct {
	Args        []string // flags
	Environment []string // name=value, as os.Environ gives them

	// ReadFile reads the configuration file; nil means from disk.
	ReadFile func(path string) ([]byte, error)
}

// Load applies defaults, file, environment and flags and validates the result.
// The error holds all problems that were found, one per line, or is ErrHelp.
func Load(src Sources) (*Loaded, error) {
	loaded := &Loaded{Config: Default()}
	origins, err := load(&loaded.Config, src)
	if err != nil {
		return nil, err
	}
	loaded.origins = origins
	return loaded, nil
}

// load does the work of Load on any configuration struct.
func load(root any, src Sources) (origins map[string]string, err error) {
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
	if path, origin := filePath(args, src.Environment); path != "" {
		data, err := src.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read the configuration file named by %s: %w", origin, err)
		}
		l.applyFile(path, data)
	}
	l.applyEnvironment(src.Environment)
	l.applyFlags(args)
	l.validate(root)
	return l.origins, l.err()
}

// filePath returns which file to read, "" for none, and who says so.
func filePath(args []argument, environment []string) (path, origin string) {
	path, origin = fromEnvironment(environment, environmentFile), "environment "+environmentFile
	for _, a := range args {
		if a.name == fileFlag {
			path, origin = a.value, "flag --"+fileFlag
		}
	}
	return path, origin
}
