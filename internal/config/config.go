package config

import (
	"errors"

	"varve/internal/server"
)

// Config is everything that can be set.
type Config struct {
	DataDir string        `yaml:"data_dir" doc:"Directory of the embedded store; it is made if it is not there. One process at a time can use it."`
	Server  server.Config `yaml:"server" doc:"Listeners, HTTP connections and stopping."`
	Log     Log           `yaml:"log" doc:"Messages of the server, written to standard error."`
}

// Default returns the configuration of a server that nobody configured.
func Default() Config {
	return Config{
		DataDir: "./varve-data",
		Server:  server.DefaultConfig(),
		Log:     DefaultLog(),
	}
}

// Validate reports what is wrong with the settings that belong to no section.
// Load validates the sections too.
func (c *Config) Validate() error {
	if c.DataDir == "" {
		return errors.New("data_dir: empty; name a directory")
	}
	return nil
}
