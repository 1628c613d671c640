package foreign

import (
	"reflect"
	"testing"
)

// TestMapping: what methods add is named as the other server names it, keys with one reason share
// a remark, and the order of the calls leaves no trace.
func TestMapping(t *testing.T) {
	m := Mapping{Root: "other.", Unknown: []string{"other.z", "other.y"}}
	m.Set("port", "server.telnet_addr", ":4242")
	m.SetList("hosts", "cassandra.hosts", []string{"b", "a"})
	m.Warn("hook", "runs code")
	m.Note("threads", "not needed")
	m.Note("cache", "no such cache")
	m.Note("pool", "not needed")
	m.Fail("ttl", "%q is no duration", "soon")
	m.Sort()
	if len(m.Faults) != 1 || m.Faults[0].Error() != `other.ttl: "soon" is no duration` {
		t.Errorf("faults %v", m.Faults)
	}
	m.Faults = nil
	want := Mapping{
		Root: "other.",
		Settings: []Setting{
			{Key: "cassandra.hosts", List: []string{"b", "a"}, From: "other.hosts"},
			{Key: "server.telnet_addr", Value: ":4242", From: "other.port"},
		},
		Notes:    []Remark{{"no such cache", []string{"other.cache"}}, {"not needed", []string{"other.pool", "other.threads"}}},
		Warnings: []Remark{{"runs code", []string{"other.hook"}}},
		Unknown:  []string{"other.y", "other.z"},
	}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("got  %+v\nwant %+v", m, want)
	}
}
