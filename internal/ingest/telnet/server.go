package telnet

import (
	"cmp"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/collectors"
	"varve/internal/ingest"
	"varve/internal/ingest/lines"
	"varve/internal/stream"
)

// Options are what a Server needs beside its configuration.
type Options struct {
	Registerer prometheus.Registerer // required
	Logger     *slog.Logger          // nil: nothing is logged
	Version    string                // answer to the version command, without line end
}

// NewServer returns a server for lines on TCP connections. cfg must be valid.
func NewServer(p *ingest.Pipeline, cfg Config, o Options) *stream.Server {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return stream.NewServer(stream.Options{
		Name: "telnet", Limit: cfg.MaxConnections, Refuse: true,
		Metrics: stream.NewMetrics(o.Registerer, "telnet", "telnet"),
	}, protocol(p, cfg, o), o.Logger)
}

func protocol(p *ingest.Pipeline, cfg Config, o Options) *lines.Protocol {
	set := collectors.Named("varve_telnet_")
	defer set.MustRegister(o.Registerer)
	proto := &lines.Protocol{
		Name: "telnet", Pipeline: p, Counts: p.Protocol("telnet"), Logger: o.Logger, Reply: []byte(o.Version + "\n"),
		Received: set.Counter("received_bytes_total", "Bytes read from connections."),
		Unread:   set.Counter("replies_dropped_total", "Replies to version that a client did not read in time."),
		MaxLine:  cfg.MaxLine, MaxLineKey: "telnet.max_line", ReadBuffer: cfg.ReadBuffer, RetryFor: cfg.RetryFor,
	}
	proto.NewParser = func(remote string) lines.Parser { return newParser(proto, remote) }
	return proto
}
