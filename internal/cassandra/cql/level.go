package cql

import gocql "github.com/apache/cassandra-gocql-driver/v2"

// A Level determines how many replicas take part in a statement.
type Level uint8

const (
	// Configured is read_consistency or write_consistency.
	Configured Level = iota

	// Quorum is for reads on which lasting decisions depend, and for their writes: at least a
	// quorum, whatever is configured, so that a reader sees everything written before. It is a
	// quorum of the local data center if writes are local.
	Quorum

	// Lasting is for reads of samples from which a lasting result is computed: Quorum, or
	// read_consistency if that requires more replicas.
	Lasting

	// SeesAll is for reads that must see everything that was written at write_consistency: a
	// quorum if write_consistency is one, otherwise all replicas.
	SeesAll

	// Everywhere is for rare operations that concern processes in other data centers: a quorum
	// of each data center. Its reads see everything written at Quorum in any data center, and
	// its writes are seen at Quorum in each.
	Everywhere

	// Serial is for reads of rows that Swap writes: it sees each successful swap, in any data
	// center, and completes an unfinished one.
	Serial
)

// levels are the consistencies of a session, by kind of statement and level.
type levels [kinds][Serial + 1]gocql.Consistency

func newLevels(config *Config) levels {
	read, _ := parseConsistency(config.ReadConsistency)
	write, _ := parseConsistency(config.WriteConsistency)
	quorum := gocql.Quorum
	switch write {
	case gocql.LocalOne, gocql.LocalQuorum, gocql.EachQuorum:
		quorum = gocql.LocalQuorum
	case gocql.One, gocql.Two, gocql.Three, gocql.Any:
		if config.Datacenter != "" {
			quorum = gocql.LocalQuorum
		}
	}
	quorumRead, quorumWrite, seesAll := quorum, quorum, gocql.All
	if read == gocql.All || read == gocql.Quorum {
		quorumRead = read
	}
	lasting := quorumRead
	if read == gocql.Three || read == gocql.EachQuorum {
		lasting = read
	}
	isQuorum := write == gocql.LocalQuorum || write == gocql.Quorum || write == gocql.EachQuorum || write == gocql.All
	if isQuorum {
		quorumWrite = write
	}
	everyRead, everyWrite := quorumRead, quorumWrite
	if quorumWrite == gocql.LocalQuorum && config.Datacenter != "" { // without a name there is only one data center: see schema.Open
		everyWrite = gocql.EachQuorum
		if quorumRead != gocql.All {
			everyRead = gocql.EachQuorum // a quorum of all replicas need not overlap with a quorum of one data center
		}
	}
	if isQuorum {
		seesAll = everyRead
	}
	return levels{
		reads:  {Configured: read, Quorum: quorumRead, Lasting: lasting, SeesAll: seesAll, Everywhere: everyRead, Serial: gocql.Serial},
		writes: {Configured: write, Quorum: quorumWrite, Lasting: quorumWrite, SeesAll: quorumWrite, Everywhere: everyWrite, Serial: quorumWrite},
	}
}

// SameReads reports whether reads at two levels have the same consistency.
func (s *Session) SameReads(a, b Level) bool { return s.levels[reads][a] == s.levels[reads][b] }
