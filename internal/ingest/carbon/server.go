package carbon

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/collectors"
	"varve/internal/ingest"
	"varve/internal/ingest/lines"
	"varve/internal/model"
	"varve/internal/stream"
)

// Options are what a server needs beside its configuration.
type Options struct {
	Registerer prometheus.Registerer // required
	Logger     *slog.Logger          // nil: nothing is logged
}

func (o *Options) received(name string) prometheus.Counter {
	set := collectors.Named("varve_" + name)
	defer set.MustRegister(o.Registerer)
	return set.Counter("_received_bytes_total", "Bytes read from connections.")
}

// newServer returns a server for connections that h speaks on.
func newServer(name string, cfg Config, h stream.Handler, o Options) *stream.Server {
	return stream.NewServer(stream.Options{
		Name: name, Limit: cfg.MaxConnections, Refuse: true,
		Metrics: stream.NewMetrics(o.Registerer, name, "carbon"),
	}, h, o.Logger)
}

// NewLineServer returns a server for text lines. cfg must be valid.
func NewLineServer(p *ingest.Pipeline, cfg Config, o Options) *stream.Server {
	return newServer("carbon", cfg, protocolOf("carbon", p, cfg, o), o)
}

// protocolOf returns lines that are counted by a name.
func protocolOf(name string, p *ingest.Pipeline, cfg Config, o Options) *lines.Protocol {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	proto := &lines.Protocol{
		Name: "carbon", Pipeline: p, Counts: p.Protocol(name), Logger: o.Logger, Received: o.received(name),
		MaxLine: cfg.MaxLine, ReadBuffer: cfg.ReadBuffer, RetryFor: cfg.RetryFor,
	}
	proto.NewParser = func(remote string) lines.Parser { return newParser(proto, remote) }
	return proto
}

// A parser stores blocks of complete lines.
type parser struct {
	adder
	proto *lines.Protocol
	block []byte // the block that is being stored
	line  line
	fill  func() error // parses block
}

func newParser(proto *lines.Protocol, remote string) *parser {
	l := &parser{adder: newAdder(proto.Pipeline, proto.Counts, remote), proto: proto}
	l.fill = func() error { return l.parse(l.block) }
	return l
}

// Store implements lines.Parser. No line is ever answered.
func (l *parser) Store(ctx context.Context, block []byte) (replies int, err error) {
	l.block = block
	_, err = l.w.Ingest(ctx, bytes.Count(block, []byte{'\n'}), l.fill)
	l.block = nil
	return 0, err
}

// parse adds lines to the batch. The last one may lack its line feed.
func (l *parser) parse(block []byte) error {
	nowMS := l.p.Now().UnixMilli()
	for rest := block; len(rest) > 0; {
		text, after, _ := bytes.Cut(rest, []byte{'\n'})
		rest = after
		if err := l.take(text, nowMS); err != nil {
			return err
		}
	}
	return nil
}

// take adds one line to the batch, or refuses it. An error ends the block.
func (l *parser) take(text []byte, nowMS int64) error {
	if len(text) > int(l.proto.MaxLine) {
		l.w.Reject(l.proto.TooLong(), text)
		return nil
	}
	if a := l.w.Guess(); a != nil && a.Word() && l.line.parseAlike(text, a.Head(), a.Tail()) {
		l.w.Follow(a)
		l.addTo(a, l.line.ms, l.line.value, text)
		return nil
	}
	empty, f := l.line.parse(text, nowMS)
	if f != nil {
		l.w.Reject(f, text)
	}
	if f != nil || empty {
		return nil
	}
	return l.add(point{l.line.path, l.line.value, l.line.ms}, text)
}

// An adder puts points into the batch of a Writer.
type adder struct {
	w     *ingest.Writer
	p     *ingest.Pipeline
	names ingest.Names
}

func newAdder(p *ingest.Pipeline, proto *ingest.Protocol, remote string) adder {
	return adder{w: p.NewWriter(proto, remote, 0), p: p}
}

// add adds a point, or refuses it and shows input. An error ends the block.
func (a *adder) add(pt point, input []byte) error {
	alias, f, err := a.find(pt.path)
	if err != nil {
		return err
	}
	if f != nil {
		a.w.Reject(f, input)
		return nil
	}
	a.addTo(alias, pt.ms, pt.value, input)
	return nil
}

// find returns the series of a path, or why the path is refused. An error ends the block.
func (a *adder) find(path []byte) (*ingest.Alias, *ingest.Fault, error) {
	head, tail := path, []byte(nil)
	if i := bytes.IndexByte(path, ';'); i >= 0 {
		head, tail = path[:i], path[i:]
	}
	if alias := a.w.Find(model.Double, head, tail); alias != nil {
		return alias, nil, nil
	}
	alias, err := a.resolve(path, head, tail)
	if f, ok := errors.AsType[*ingest.Fault](err); ok {
		return nil, f, nil
	}
	return alias, nil, err
}

// addTo is add for a series that is known.
func (a *adder) addTo(alias *ingest.Alias, ms int64, value float64, input []byte) {
	if f := a.w.AddDouble(alias.Ref, ms, value, alias.TTL); f != nil {
		a.w.Reject(f, input)
	}
}

func (a *adder) resolve(path, head, tail []byte) (*ingest.Alias, error) {
	a.names.Reset()
	if f := ParsePath(path, &a.names, a.p.Config().MaxTags); f != nil {
		return nil, f
	}
	return a.w.Resolve(model.Double, head, tail, &a.names)
}
