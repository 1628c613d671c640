package kairos

import (
	"errors"
	"fmt"

	"varve/internal/units"
)

// Config bounds requests and answers.
type Config struct {
	MaxQuerySize   units.Bytes `yaml:"max_query_size" doc:"Largest JSON text of a query or delete request."`
	ResponseBuffer units.Bytes `yaml:"response_buffer" doc:"Most bytes of an answer that are held back until it is complete; a larger one is sent while it is computed, and a failure then breaks the connection."`
	MaxValueSize   units.Bytes `yaml:"max_value_size" doc:"Largest text that the metadata API stores under one key."`
	RegexPrefix    string      `yaml:"regex_prefix" doc:"Tag filter values that begin with this are regular expressions; empty turns them off."`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{MaxQuerySize: units.MiB, MaxValueSize: units.MiB, ResponseBuffer: 16 * units.MiB, RegexPrefix: "regex:"}
}

// Validate reports all values that make no sense.
func (c Config) Validate() error {
	var errs []error
	if c.MaxQuerySize <= 0 {
		errs = append(errs, fmt.Errorf("kairos.max_query_size: %d is not greater than 0", c.MaxQuerySize))
	}
	if c.MaxValueSize <= 0 {
		errs = append(errs, fmt.Errorf("kairos.max_value_size: %d is not greater than 0", c.MaxValueSize))
	}
	if c.ResponseBuffer < 0 {
		errs = append(errs, fmt.Errorf("kairos.response_buffer: %d is negative", c.ResponseBuffer))
	}
	return errors.Join(errs...)
}
