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

// levels are the consistencies of a session.
type levels struct {
	read, write             gocql.Consistency // configured
	quorumRead, quorumWrite gocql.Consistency
	lastingRead             gocql.Consistency
	seesAll                 gocql.Consistency
	everyRead, everyWrite   gocql.Consistency
}

func newLevels(config *Config) levels {
	l := levels{}
	l.read, _ = parseConsistency(config.ReadConsistency)
	l.write, _ = parseConsistency(config.WriteConsistency)
	quorum := gocql.Quorum
	switch l.write {
	case gocql.LocalOne, gocql.LocalQuorum, gocql.EachQuorum:
		quorum = gocql.LocalQuorum
	case gocql.One, gocql.Two, gocql.Three, gocql.Any:
		if config.Datacenter != "" {
			quorum = gocql.LocalQuorum
		}
	}
	l.quorumRead, l.quorumWrite, l.seesAll = quorum, quorum, gocql.All
	if l.read == gocql.All || l.read == gocql.Quorum {
		l.quorumRead = l.read
	}
	l.lastingRead = l.quorumRead
	if l.read == gocql.Three || l.read == gocql.EachQuorum {
		l.lastingRead = l.read
	}
	isQuorum := l.write == gocql.LocalQuorum || l.write == gocql.Quorum || l.write == gocql.EachQuorum || l.write == gocql.All
	if isQuorum {
		l.quorumWrite = l.write
	}
	l.everyRead, l.everyWrite = l.quorumRead, l.quorumWrite
	if l.quorumWrite == gocql.LocalQuorum && config.Datacenter != "" { // without a name there is only one data center: see schema.Open
		l.everyWrite = gocql.EachQuorum
		if l.quorumRead != gocql.All {
			l.everyRead = gocql.EachQuorum // a quorum of all replicas need not overlap with a quorum of one data center
		}
	}
	if isQuorum {
		l.seesAll = l.everyRead
	}
	return l
}

func (l *levels) of(level Level, k kind) gocql.Consistency {
	switch {
	case k == reads && level == Serial:
		return gocql.Serial
	case k == writes && level == Everywhere:
		return l.everyWrite
	case k == writes && level != Configured:
		return l.quorumWrite
	case k == writes:
		return l.write
	case level == Quorum:
		return l.quorumRead
	case level == Lasting:
		return l.lastingRead
	case level == SeesAll:
		return l.seesAll
	case level == Everywhere:
		return l.everyRead
	}
	return l.read
}

// SameReads reports whether reads at two levels have the same consistency.
func (s *Session) SameReads(a, b Level) bool { return s.levels.of(a, reads) == s.levels.of(b, reads) }
