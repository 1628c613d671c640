package cql

import (
	"testing"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// TestLastingReads: they take a quorum at least, and no fewer replicas than queries.
func TestLastingReads(t *testing.T) {
	for _, test := range []struct {
		read, write, datacenter string
		want                    gocql.Consistency
	}{
		{"ONE", "QUORUM", "", gocql.Quorum},
		{"LOCAL_ONE", "LOCAL_QUORUM", "dc1", gocql.LocalQuorum},
		{"TWO", "QUORUM", "", gocql.Quorum},
		{"LOCAL_QUORUM", "LOCAL_QUORUM", "dc1", gocql.LocalQuorum},
		{"LOCAL_QUORUM", "QUORUM", "dc1", gocql.Quorum},
		{"QUORUM", "LOCAL_QUORUM", "dc1", gocql.Quorum},
		{"THREE", "ONE", "", gocql.Three},
		{"EACH_QUORUM", "LOCAL_QUORUM", "dc1", gocql.EachQuorum},
		{"ALL", "ONE", "", gocql.All},
	} {
		config := DefaultConfig()
		config.ReadConsistency, config.WriteConsistency, config.Datacenter = test.read, test.write, test.datacenter
		l := newLevels(&config)
		if got := l[reads][Lasting]; got != test.want {
			t.Errorf("read %s, write %s, data center %q: %v, want %v", test.read, test.write, test.datacenter, got, test.want)
		}
	}
}

// TestLevels: what decides is read and written so that each read sees each write.
func TestLevels(t *testing.T) {
	for _, test := range []struct {
		read, write, datacenter string
		quorumRead, quorumWrite gocql.Consistency
		seesAll                 gocql.Consistency
		everyRead, everyWrite   gocql.Consistency
	}{
		{"LOCAL_QUORUM", "LOCAL_QUORUM", "", gocql.LocalQuorum, gocql.LocalQuorum, gocql.LocalQuorum, gocql.LocalQuorum, gocql.LocalQuorum},
		{"LOCAL_QUORUM", "LOCAL_QUORUM", "dc1", gocql.LocalQuorum, gocql.LocalQuorum, gocql.EachQuorum, gocql.EachQuorum, gocql.EachQuorum},
		{"ONE", "QUORUM", "", gocql.Quorum, gocql.Quorum, gocql.Quorum, gocql.Quorum, gocql.Quorum}, // as KairosDB is shipped
		{"ONE", "QUORUM", "dc1", gocql.Quorum, gocql.Quorum, gocql.Quorum, gocql.Quorum, gocql.Quorum},
		{"LOCAL_ONE", "LOCAL_QUORUM", "dc1", gocql.LocalQuorum, gocql.LocalQuorum, gocql.EachQuorum, gocql.EachQuorum, gocql.EachQuorum},
		{"ONE", "ONE", "", gocql.Quorum, gocql.Quorum, gocql.All, gocql.Quorum, gocql.Quorum},
		{"ONE", "ONE", "dc1", gocql.LocalQuorum, gocql.LocalQuorum, gocql.All, gocql.EachQuorum, gocql.EachQuorum},
		{"LOCAL_ONE", "LOCAL_ONE", "", gocql.LocalQuorum, gocql.LocalQuorum, gocql.All, gocql.LocalQuorum, gocql.LocalQuorum},
		{"ONE", "TWO", "", gocql.Quorum, gocql.Quorum, gocql.All, gocql.Quorum, gocql.Quorum},
		{"ALL", "ONE", "", gocql.All, gocql.Quorum, gocql.All, gocql.All, gocql.Quorum},
		{"ALL", "LOCAL_QUORUM", "dc1", gocql.All, gocql.LocalQuorum, gocql.All, gocql.All, gocql.EachQuorum},
		{"QUORUM", "LOCAL_QUORUM", "dc1", gocql.Quorum, gocql.LocalQuorum, gocql.EachQuorum, gocql.EachQuorum, gocql.EachQuorum}, // a quorum of all may miss that of one
		{"LOCAL_QUORUM", "EACH_QUORUM", "dc1", gocql.LocalQuorum, gocql.EachQuorum, gocql.LocalQuorum, gocql.LocalQuorum, gocql.EachQuorum},
		{"ONE", "ALL", "", gocql.Quorum, gocql.All, gocql.Quorum, gocql.Quorum, gocql.All},
	} {
		config := DefaultConfig()
		config.ReadConsistency, config.WriteConsistency, config.Datacenter = test.read, test.write, test.datacenter
		l := newLevels(&config)
		configured, quorum, all, every := new(Statement), &Statement{Level: Quorum}, &Statement{Level: SeesAll}, &Statement{Level: Everywhere}
		wantRead, _ := parseConsistency(test.read)
		wantWrite, _ := parseConsistency(test.write)
		for _, of := range []struct {
			st   *Statement
			kind kind
			want gocql.Consistency
		}{
			{configured, reads, wantRead}, {configured, writes, wantWrite},
			{quorum, reads, test.quorumRead}, {quorum, writes, test.quorumWrite},
			{all, reads, test.seesAll},
			{every, reads, test.everyRead}, {every, writes, test.everyWrite},
		} {
			if got := l[of.kind][of.st.Level]; got != of.want {
				t.Errorf("read %s, write %s, data center %q: level %d, kind %v: %v, want %v",
					test.read, test.write, test.datacenter, of.st.Level, of.kind, got, of.want)
			}
		}
	}
}
