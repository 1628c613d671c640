package main

import (
	"errors"

	"varve/internal/config"
)

// load reads the configuration from all layers.
func load(t terminal, args []string) (*config.Loaded, error) { return loadBy(t, args, nil) }

// loadAgain is load for a reload.
func loadAgain(t terminal, args []string) (*config.Loaded, error) {
	return loadBy(t, args, config.ReadAgain)
}

func loadBy(t terminal, args []string, read func(path string) ([]byte, error)) (*config.Loaded, error) {
	loaded, err := config.Load(config.Sources{Args: args, Environment: t.environment, ReadFile: read})
	if err != nil && !errors.Is(err, config.ErrHelp) {
		return nil, &usageError{err}
	}
	return loaded, err
}

func printConfig(t terminal, args []string) error {
	loaded, err := load(t, args)
	if err != nil {
		return err
	}
	return loaded.WriteYAML(t.stdout)
}
