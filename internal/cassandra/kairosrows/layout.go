package kairosrows

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/cover"
	"varve/internal/cassandra/kairosrows/read"
	"varve/internal/cassandra/kairosrows/remove"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/write"
	"varve/internal/cassandra/layout"
	"varve/internal/model"
	"varve/internal/store"
)

// A Layout opens keyspaces of KairosDB: it implements layout.Layout.
type Layout struct {
	settings Settings

	mu       sync.Mutex
	tagIndex []string  // set by SetTagIndex
	open     []*opened // with a writer
}

var (
	_ layout.Layout   = (*Layout)(nil)
	_ store.KeyValues = (*opened)(nil)
	_ layout.Sink     = (*write.Writer)(nil)
	_ layout.Look     = (*read.Look)(nil)
	_ layout.Deleter  = (*remove.Deleter)(nil)
)

// NewLayout returns a Layout with settings that are valid.
func NewLayout(s Settings) *Layout { return &Layout{settings: s, tagIndex: s.Write.TagIndex} }

// CheckSeries implements layout.Layout.
func (l *Layout) CheckSeries(s model.Series) error { return l.settings.Write.CheckSeries(s) }

// CheckSample implements layout.Layout.
func (l *Layout) CheckSample(nowMS int64, k model.Kind, ms int64, value uint64, data []byte, ttl uint32) error {
	return l.settings.Write.CheckSample(nowMS, k, ms, value, data, ttl)
}

// SetTagIndex replaces the rules of tag_indexed_row_keys, in open keyspaces and in those opened
// later.
func (l *Layout) SetTagIndex(lines []string) error {
	if _, err := write.ParseTagRules(lines); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tagIndex = lines
	for _, o := range l.open {
		if err := o.writer.SetTagIndex(lines); err != nil {
			return err
		}
	}
	return nil
}

// Open implements layout.Layout.
func (l *Layout) Open(ctx context.Context, session *cql.Session, o layout.Options) (layout.Keyspace, error) {
	c := l.settings.Schema
	if o.Role != layout.RoleAll {
		c.Role = o.Role
	}
	if o.Replication != "" {
		c.Replication = o.Replication
	}
	ks, err := schema.Open(ctx, session, c, o.Progress)
	if err != nil {
		return nil, err
	}
	opened := &opened{Keyspace: ks, layout: l}
	if o.Role == layout.RoleMeta {
		return opened, nil
	}
	if err := opened.begin(l.settings, o); err != nil {
		opened.Close()
		return nil, err
	}
	return opened, nil
}

// opened is an open keyspace with its reader and writer. In a read-only keyspace, only deletes
// use the writer.
type opened struct {
	*schema.Keyspace
	layout  *Layout
	reader  *read.Reader
	coverer *cover.Coverer
	writer  *write.Writer
	deleter *remove.Deleter
	stops   []func() // called by Close, in this order
}

func (k *opened) begin(s Settings, o layout.Options) (err error) {
	k.reader, err = read.New(k.Keyspace, s.Read, read.Options{
		Registerer: o.Registerer, Uncovered: func(p rowkey.Partition) { k.coverer.Ask(p) },
		KairosDB: func(ctx context.Context) (bool, error) { return k.deleter.KairosDBRuns(ctx) },
	})
	if err != nil {
		return err
	}
	k.stops = append(k.stops, k.reader.Close)
	c := cover.Config{Rate: s.Read.CoverRate, Interval: s.Read.CoverInterval, Settle: s.Read.Settle}
	if k.coverer, err = cover.New(k.Keyspace, c, k.reader, cover.Options{Registerer: o.Registerer, Logger: o.Logger, ClockSet: o.ClockSet}); err != nil {
		return err
	}
	k.stops = append(k.stops, k.coverer.Close)
	if err := k.beginWriter(s.Write, o); err != nil {
		return err
	}
	k.deleter, err = remove.New(k.Keyspace, k.writer, s.Delete, remove.Options{
		Registerer: o.Registerer, Logger: o.Logger, Node: o.Node, Deleted: k.reader.RowChanged, Cluster: o.Cluster, Services: k.services(o),
	})
	if err != nil {
		return err
	}
	k.stops = append(k.stops, k.deleter.Close)
	watch, err := write.NewWatch(k.writer, o.Registerer, k.deleter.KairosDBRuns)
	if err == nil {
		k.stops = append(k.stops, watch.Close)
	}
	return err
}

func (k *opened) beginWriter(c write.Config, o layout.Options) (err error) {
	k.layout.mu.Lock()
	defer k.layout.mu.Unlock()
	c.TagIndex = k.layout.tagIndex
	k.writer, err = write.New(k.Keyspace, c, write.Options{
		Registerer: o.Registerer, Logger: o.Logger, Wrote: k.reader.RowChanged, KeysChanged: k.reader.RowKeysChanged,
	})
	if err == nil {
		k.layout.open = append(k.layout.open, k)
		k.stops = append(k.stops, k.closeWriter)
	}
	return err
}

func (k *opened) closeWriter() {
	k.layout.mu.Lock()
	k.layout.open = slices.DeleteFunc(k.layout.open, func(o *opened) bool { return o == k })
	k.layout.mu.Unlock()
	k.writer.Close()
}

// services returns a function that finds the keyspace with service_index.
func (k *opened) services(o layout.Options) func() (*schema.Keyspace, error) {
	if o.Services == nil {
		return nil
	}
	return func() (*schema.Keyspace, error) {
		services, err := o.Services()
		if err != nil {
			return nil, err
		}
		other, ok := services.(*opened)
		if !ok {
			return nil, fmt.Errorf("the metadata is in a keyspace with another layout (%T)", services)
		}
		return other.Keyspace, nil
	}
}

// Description implements layout.Keyspace.
func (k *opened) Description() layout.Description {
	rows := layout.Rows{TimeUnit: k.Spec.Unit.String(), Width: k.Spec.Width, Inverted: k.Tables.Own}
	return layout.Description{Name: k.Name, Rows: &rows, Notes: k.Notes}
}

// Sink implements layout.Keyspace.
func (k *opened) Sink() layout.Sink { return k.writer }

// Look implements layout.Keyspace.
func (k *opened) Look() layout.Look { return k.reader.Look() }

// Deleter implements layout.Keyspace.
func (k *opened) Deleter() layout.Deleter { return k.deleter }

// Close implements layout.Keyspace.
func (k *opened) Close() {
	for _, stop := range slices.Backward(k.stops) {
		stop()
	}
}
