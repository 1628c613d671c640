package cassandra

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/layout"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/work"
)

// A cluster is a Cassandra cluster with one keyspace. The keyspace is opened when the cluster
// is first reached, however long that takes.
type cluster struct {
	name    string
	role    string          // see layout.Options.Role
	layout  string          // name of the layout
	tables  layout.Layout   // the layout
	within  model.TimeRange // queries for other times skip this cluster
	session *cql.Session
	log     *slog.Logger

	ready  atomic.Pointer[layout.Keyspace] // nil until the keyspace is open
	opened chan struct{}                   // closed when the keyspace is open
	reason atomic.Pointer[error]           // why the keyspace is not open

	misdirected atomic.Pointer[MisdirectedError]    // set while another cluster answers
	changed     atomic.Pointer[layout.ChangedError] // set while the keyspace differs from the one that was opened
}

// openCluster begins to connect to a cluster. The session's metrics are labelled with its name.
func openCluster(name, role, tables string, within model.TimeRange, cfg cql.Config, o Options) (*cluster, error) {
	opener, err := o.Layouts.Named(tables)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", name, err)
	}
	session, err := cql.Open(cfg, cql.Options{Registerer: labelled(o.Registerer, name), Logger: o.Logger})
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", name, err)
	}
	c := &cluster{name: name, role: role, layout: cmp.Or(tables, layout.Default), tables: opener, within: within, session: session, log: o.Logger, opened: make(chan struct{})}
	c.unreached(errors.New("connecting to " + strings.Join(cfg.Hosts, ", ")))
	return c, nil
}

// labelled adds the name of a cluster to all metrics.
func labelled(r prometheus.Registerer, name string) prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{"cluster": name}, r)
}

// connect connects to the cluster and opens its keyspace, retrying until ctx ends. It reports
// whether it succeeded.
func (c *cluster) connect(ctx context.Context, open func(context.Context) (layout.Keyspace, error)) bool {
	for wait := time.Second / 4; ; wait = min(2*wait, 15*time.Second) {
		ks, err := open(ctx)
		if err == nil {
			c.ready.Store(&ks)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		c.unreached(err)
		c.log.Warn("the keyspace cannot be opened; trying again", "cluster", c.name, "error", err, "in", wait)
		if work.Pause(ctx, wait) != nil {
			return false
		}
	}
}

func (c *cluster) unreached(err error) { c.reason.Store(&err) }

// keyspace returns the open keyspace, nil if it is not open yet.
func (c *cluster) keyspace() layout.Keyspace {
	if ks := c.ready.Load(); ks != nil {
		return *ks
	}
	return nil
}

// checkCluster returns an error while another cluster answers in place of this one.
func (c *cluster) checkCluster() error {
	if err := c.misdirected.Load(); err != nil {
		return &store.UnavailableError{Reason: "another cluster answers", Err: err}
	}
	return nil
}

// checkAim returns an error while another cluster answers in place of this one, or the keyspace
// was created again.
func (c *cluster) checkAim() error {
	if err := c.checkCluster(); err != nil {
		return err
	}
	if err := c.changed.Load(); err != nil {
		return &store.UnavailableError{Reason: "the keyspace has changed", Err: err}
	}
	return nil
}

// confirm checks that the keyspace, if it is open, is the one that was opened.
func (c *cluster) confirm(ctx context.Context) error {
	ks := c.keyspace()
	if ks == nil {
		return nil
	}
	err := ks.Confirm(ctx)
	if changed, ok := errors.AsType[*layout.ChangedError](err); ok || err == nil {
		c.changed.Store(changed)
	}
	return err
}

// open returns the open keyspace, or why it is not open or may not be used.
func (c *cluster) open() (layout.Keyspace, error) {
	if err := c.checkAim(); err != nil {
		return nil, err
	}
	if ks := c.keyspace(); ks != nil {
		return ks, nil
	}
	reason := "the keyspace is not open yet"
	if c.role != layout.RoleAll {
		reason = "the keyspace of cluster " + c.name + " is not open yet"
	}
	return nil, &store.UnavailableError{Reason: reason, Err: c.why()}
}

// why returns why the keyspace is not open.
func (c *cluster) why() error {
	if state := c.session.State(); !state.Connected {
		return errors.New(state.Reason)
	}
	return *c.reason.Load()
}

// degraded returns nil while the cluster answers, otherwise why it does not.
func (c *cluster) degraded() error {
	switch state := c.session.State(); {
	case !state.Connected:
		return fmt.Errorf("cluster %s has been unreachable since %s: %s", c.name, state.Since.UTC().Format(time.RFC3339), state.Reason)
	case c.keyspace() == nil:
		return fmt.Errorf("cluster %s: its keyspace is not open: %w", c.name, c.why())
	}
	return nil
}

func (c *cluster) close() {
	if ks := c.keyspace(); ks != nil {
		ks.Close()
	}
	c.session.Close()
}

// expected reports whether an error without a name is assumed to concern this cluster.
func (c *cluster) expected() bool { return c.name == WriteClusterName }

// explain adds the name of the cluster to an error, unless the cluster is the expected one.
func (c *cluster) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case c.role == layout.RoleAll:
		return ofKeyspace(c.name, err)
	}
	return fmt.Errorf("cluster %s: %w", c.name, err)
}
