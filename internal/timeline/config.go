package timeline

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"varve/internal/units"
)

// Config are the settings of timelines. To Open, but not to Validate, zero means the default,
// except for RateMax and Adapt.
type Config struct {
	PayloadBytesMax units.Bytes   `yaml:"payload_bytes_max" default:"1MiB" want:"1KiB to 16MiB" doc:"Largest data of an event, 1KiB to 16MiB."`
	TimelinesMax    int           `yaml:"timelines_max" default:"100000" want:"1 to 10000000" doc:"Most timelines, 1 to 10000000. At the limit, no new one is created."`
	RateMax         int           `yaml:"rate_max" want:"not negative" doc:"Most events per second that one timeline accepts from this server; bursts of 10 times as many are allowed. 0 means no limit."`
	TailsMax        int           `yaml:"tails_max" default:"1000" want:"1 to 100000" doc:"Number of readers that may follow timelines at the same time, 1 to 100000. One address may have at most seven eighths of them."`
	LeadTime        time.Duration `yaml:"lead_time" default:"1m" want:"1s to 1h" doc:"A change of layout is written this long before it takes effect, 1s to 1h. Events may be at most this far in the future. Must be the same on all servers of a cluster."`
	Adapt           bool          `yaml:"adapt" default:"true" doc:"Adapts bucket sizes and numbers of partitions to the measured rate."`
	Spool           []string      `yaml:"spool" doc:"Names of at most 1000 timelines whose events are acknowledged once they are in a log on this server's disk, and written to Cassandra afterwards. So these timelines accept events while Cassandra is down. No effect with store: embedded."`
	SpoolBytesMax   units.Bytes   `yaml:"spool_bytes_max" default:"1GiB" want:"16MiB to 1024GiB" doc:"Most bytes of events that may wait for Cassandra in the log of timeline.spool, 16MiB to 1024GiB. At the limit, appends to these timelines are refused."`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config { return units.Defaults[Config]() }

func (c Config) withDefaults() Config {
	d := DefaultConfig()
	c.PayloadBytesMax = cmp.Or(c.PayloadBytesMax, d.PayloadBytesMax)
	c.TimelinesMax = cmp.Or(c.TimelinesMax, d.TimelinesMax)
	c.TailsMax = cmp.Or(c.TailsMax, d.TailsMax)
	c.LeadTime = cmp.Or(c.LeadTime, d.LeadTime)
	c.SpoolBytesMax = cmp.Or(c.SpoolBytesMax, d.SpoolBytesMax)
	return c
}

// Validate reports all settings that are out of range.
func (c Config) Validate() error {
	errs := []error{
		units.Bounds("", c),
		units.Check(len(c.Spool) <= spoolNames, "spool", fmt.Sprintf("up to %d names", spoolNames), len(c.Spool)),
	}
	for _, name := range c.Spool {
		if err := checkNewName(name); err != nil {
			errs = append(errs, fmt.Errorf("spool: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Bounds of requests.
const (
	BatchEvents     = 10_000          // events per call of Append, each counted once per timeline
	BatchBytes      = 64 * units.MiB  // data per call of Append, counted likewise
	FanoutMax       = 64              // timelines per event, and per merged read
	PageEventsMax   = 10_000          // events per page
	PageEvents      = 100             // events per page by default
	PageBytes       = 16 * units.MiB  // data after which a page ends early, with a cursor
	NamesMax        = 1000            // names per page
	pageBuckets     = 1000            // buckets read after which a page ends early
	pageTime        = 5 * time.Second // reading time after which a page ends early
	prefetchMax     = 8               // parts read concurrently for one page
	payloadsAtOnce  = 16              // payloads fetched concurrently for one page
	spoolNames      = 1000            // timelines that can be spooled
	HybridThreshold = 16 * units.KiB  // default threshold of hybrid timelines
)
