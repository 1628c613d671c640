package ingest

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"varve/internal/machine"
	"varve/internal/units"
)

// Config holds the limits that all protocols share.
type Config struct {
	SamplesPerSecond int `yaml:"samples_per_second" want:"not negative" doc:"Most samples per second of all senders together; bursts of one second's worth are allowed. At the limit, Varve reads line connections more slowly and answers HTTP with 503. 0 means no limit."`

	NewSeriesPerSecond int `yaml:"new_series_per_second" default:"50000" want:"positive" doc:"Most new series per second on average; bursts of twenty times as many are allowed. Known series are never delayed."`
	MaxSeries          int `yaml:"max_series" default:"5000000" want:"positive" doc:"Most series in the store. At the limit, points of new series are refused."`

	MaxSeriesMemory units.Bytes `yaml:"max_series_memory" want:"not negative" doc:"Most memory for the names of all series and their index. At the limit, points of new series are refused. 0 means a quarter of the memory of the machine or its control group."`

	DefaultTTL      time.Duration `yaml:"default_ttl" want:"0s to 175200h" doc:"Time to live of points that are sent without one, in whole seconds, at most 7300d. 0 keeps them for ever. A change does not affect points that are already stored."`
	TTLFrom         TTLFrom       `yaml:"ttl_from" default:"write" doc:"When the time to live of a point begins: write is when the point is written, as in KairosDB; timestamp is the point's own time. With timestamp, points that have already expired are refused."`
	ForceDefaultTTL bool          `yaml:"force_default_ttl" doc:"Gives default_ttl to all points, including those that are sent with a time to live."`

	MaxTags          int         `yaml:"max_tags" default:"64" want:"positive" doc:"Most tags of a series."`
	MaxTagValueBytes units.Bytes `yaml:"max_tag_value_bytes" default:"4KiB" want:"positive" doc:"Longest tag value."`

	BodyMemory units.Bytes `yaml:"body_memory" want:"not negative" doc:"Memory for the HTTP bodies of all requests together; 0 means 256MiB, or a sixteenth of the memory of the machine or its control group if that is less. One body may be a quarter of it as sent, and half of it after decompression. If it is at least 4 MiB, an eighth of it is reserved for small bodies, each at most a thousandth of it (256 KiB of 256 MiB), so that they do not wait behind large ones. When the memory is used up, HTTP answers 503. In addition, buffers of telnet and carbon connections that are larger than 16 KiB may together take an eighth of it; for each connection, up to 64 KiB of an incomplete pickle do not count."`

	// Constants; tests and benchmarks change them by --tune.

	BusyWait      time.Duration `tune:"busy_wait" default:"500ms" want:"positive"`    // how long an HTTP request waits for room before it is answered 503
	StoreWait     time.Duration `tune:"store_wait" default:"30s" want:"positive"`     // how long it waits for the store to take its samples before that
	RejectedKept  int           `tune:"rejected_kept" default:"200" want:"positive"`  // latest refused inputs that are kept to be looked at
	RejectedBytes units.Bytes   `tune:"rejected_bytes" default:"512" want:"positive"` // length to which each of them is cut

	// Constants that, while they are 0, follow from a setting: see the methods
	// of the same names.

	NewSeriesBurst   int         `tune:"new_series_burst" want:"not negative"`
	MaxBodyBytes     units.Bytes `tune:"max_body_bytes" want:"not negative"`
	MaxUnpackedBytes units.Bytes `tune:"max_unpacked_bytes" want:"0 to 2GiB"`
	AliasCache       units.Bytes `tune:"alias_cache" want:"not negative"`

	// MaxSamplesInFlight bounds the samples that are parsed but not yet stored, of all senders.
	// At the limit, sockets are read more slowly and HTTP answers 503. More would only wait
	// longer for the same store.
	MaxSamplesInFlight int         `tune:"max_samples_in_flight" want:"positive"`
	MaxMetricBytes     units.Bytes `tune:"max_metric_bytes" default:"2KiB" want:"positive"`   // longest metric name; Cassandra's key of a row has room for 65,535 bytes of all names
	MaxTagNameBytes    units.Bytes `tune:"max_tag_name_bytes" default:"512" want:"positive"`  // longest tag name
	MaxStringBytes     units.Bytes `tune:"max_string_bytes" default:"65535" want:"1 to 4MiB"` // longest string value; the default is what a row of KairosDB holds
}

// Senders take turns to be admitted, but an admitted block shares the processors with all other
// admitted blocks. At 200,000 samples per second and processor, blocksInFlight for each take 0.65
// s. With a million on two processors, others waited for seconds.
const (
	blocksInFlight = 16
	mostInFlight   = 1_000_000 // samples
)

// DefaultConfig returns the limits without any configuration.
func DefaultConfig() Config { return units.Defaults[Config]() }

// SetDefaults sets what depends on the machine.
func (c *Config) SetDefaults() {
	c.MaxSamplesInFlight = min(mostInFlight, blocksInFlight*BlockSamples*runtime.GOMAXPROCS(0))
}

// newSeriesBurst is how many new series may come at once, before NewSeriesPerSecond applies:
// those of a first start, or of a deployment.
func (c Config) newSeriesBurst() int {
	if c.NewSeriesBurst > 0 {
		return c.NewSeriesBurst
	}
	return 20 * min(c.NewSeriesPerSecond, math.MaxInt/20)
}

// While body_memory is 0, bodies may take one part in bodyParts of the memory, and at most mostBodies.
const (
	mostBodies = 256 * units.MiB
	bodyParts  = 16
)

// Bodies is the memory for the HTTP bodies of all requests together.
func (c Config) Bodies() units.Bytes {
	return cmp.Or(c.BodyMemory, units.Bytes(machine.Part(bodyParts, int64(mostBodies))))
}

// Buffers is the memory for the buffers of connections of lines and pickles that are larger than their first
// ones.
func (c Config) Buffers() units.Bytes { return c.Bodies() / 8 }

// MaxBody is the length of the longest HTTP body as it is sent, if body_memory is not 0. Together with
// its uncompressed form it takes at most three quarters of the memory of all bodies.
func (c Config) MaxBody() units.Bytes { return cmp.Or(c.MaxBodyBytes, max(c.BodyMemory/4, 1)) }

// maxUnpacked is the length of the longest HTTP body after decompression.
func (c Config) maxUnpacked() units.Bytes {
	return cmp.Or(c.MaxUnpackedBytes, min(max(c.BodyMemory/2, 1), 2*units.GiB))
}

// AliasMemory is the memory of the cache that leads from names, as clients send them, to series: a
// quarter of the limit for the names of all series, and at most 128MiB.
func (c Config) AliasMemory() int64 {
	return cmp.Or(int64(c.AliasCache), min(machine.Share(int64(c.MaxSeriesMemory))/4, 128*int64(units.MiB)))
}

// Validate reports every value that makes no sense, by its key.
func (c Config) Validate() error {
	sized := c
	sized.BodyMemory = c.Bodies()
	whole := sized.MaxBody() + sized.maxUnpacked()
	return errors.Join(
		units.Bounds("", c),
		units.Check(c.BodyMemory < 0 || sized.BodyMemory >= whole, "body_memory", fmt.Sprintf("room for at least one body as it is sent and unpacked, %s", whole), sized.BodyMemory),
		units.Check(c.DefaultTTL%time.Second == 0, "default_ttl", "whole seconds", c.DefaultTTL),
		checkTTLFrom(c.TTLFrom),
	)
}
