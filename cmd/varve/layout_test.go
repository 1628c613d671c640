package main

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"varve/internal/cassandra"
	"varve/internal/config"
)

// TestOtherLayout: commands that know KairosDB's tables refuse a keyspace whose tables have
// another layout by the settings, before they connect, and say which ones they leave out.
func TestOtherLayout(t *testing.T) {
	c := config.Default()
	c.Store = config.Cassandra
	c.Cassandra.Hosts = []string{"127.0.0.1:1"}
	c.Cassandra.Keyspaces = []cassandra.KeyspaceConfig{
		{Name: "packed", Metrics: []string{"prefix=p."}, Layout: "plain", ClusterConfig: cassandra.ClusterConfig{Keyspace: "packed_points"}},
		{Name: "second", Metrics: []string{"prefix=s."}, ClusterConfig: cassandra.ClusterConfig{Keyspace: "second_points"}},
	}
	notes := strings.Join(unrepaired(c), "\n")
	for _, want := range []string{"keyspace packed of cassandra.keyspaces is not repaired: its tables have layout plain", "keyspace second of cassandra.keyspaces is not repaired with this one"} {
		if !strings.Contains(notes, want) {
			t.Errorf("notes of repair: %q, want %q", notes, want)
		}
	}
	c.Cassandra.Keyspace = "packed_points"
	const refusal = "keyspace packed_points belongs to packed in the settings, whose tables have layout plain"
	out := terminal{io.Discard, io.Discard, nil}
	for name, run := range map[string]func(line) error{
		"inspect":     func(l line) error { return inspectKeyspace(out, c, l) },
		"preflight":   func(l line) error { l.flags["preflight"] = "true"; return inspectKeyspace(out, c, l) },
		"repair":      func(l line) error { return repairKeyspace(out, c, l) },
		"inspect one": func(l line) error { l.flags["cluster"] = "packed"; return inspectKeyspace(out, c, l) },
	} {
		err := run(line{flags: map[string]string{"state": filepath.Join(t.TempDir(), "state")}})
		var usage *usageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), "layout plain") || name != "inspect one" && !strings.Contains(err.Error(), refusal) {
			t.Errorf("%s: %v", name, err)
		}
	}
	findings, err := firstFindings(c)
	if err != nil || len(findings) != 1 || !strings.Contains(findings[0].Text, refusal) {
		t.Errorf("doctor: %+v, %v", findings, err)
	}
	further, err := furtherFindings(c, c.Cassandra.Keyspaces[0])
	if err != nil || len(further) != 1 || !strings.Contains(further[0].Text, "layout plain") {
		t.Errorf("doctor, of the further one: %+v, %v", further, err)
	}
	c.Cassandra.Keyspace = "second_points"
	if err := checkLayout(c); err != nil {
		t.Errorf("a further keyspace of KairosDB's layout: %v", err)
	}
}
