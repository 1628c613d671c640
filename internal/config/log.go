package config

import (
	"fmt"
	"io"
	"log/slog"

	"varve/internal/units"
)

// Log says which messages are written, and how.
type Log struct {
	Level  slog.Level `yaml:"level" default:"info" doc:"Lowest level that is logged: debug, info, warn or error."`
	Format string     `yaml:"format" default:"text" doc:"Format of messages: text (key=value) or json, one message per line."`
}

// DefaultLog returns text from level info.
func DefaultLog() Log { return units.Defaults[Log]() }

// Validate reports what is wrong with c.
func (c Log) Validate() error {
	if c.Format != "text" && c.Format != "json" {
		return fmt.Errorf("format: %q: want text or json", c.Format)
	}
	return nil
}

// Logger returns a logger that writes to w in c's format. It leaves out records
// below level, which may change. Both formats have durations as text with a unit.
func (c Log) Logger(w io.Writer, level slog.Leveler) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if c.Format != "json" {
		return slog.New(slog.NewTextHandler(w, o))
	}
	o.ReplaceAttr = func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			a.Value = slog.StringValue(a.Value.Duration().String())
		}
		return a
	}
	return slog.New(slog.NewJSONHandler(w, o))
}
