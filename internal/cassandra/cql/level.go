package cql

import gocql "github.com/apache/cassandra-gocql-driver/v2"

// A Level says how many replicas take part in a statement.
type Level uint8

const (
	// Configured is read_consistency or write_consistency.
	Configured Level = iota

	// Quorum is for reads that lasting decisions depend on, and for what such decisions
	// write: at least a quorum, whatever is configured, so that a reader sees everything
	// written before. It is a quorum of the local data center if writes are local.
	Quorum

	// Lasting is for reads of samples that a lasting result is made from: Quorum, or
	// read_consistency if that takes more replicas.
	Lasting

	// SeesAll is for reads that have to see everything that was written at
	// write_consistency: a quorum if that is one, otherwise all replicas.
	SeesAll

	// Everywhere is Quorum for rare operations that concern processes of other data
	// centers: a quorum of each. Reads see what was written at Quorum in any of them, and
	// what is written is seen at Quorum in each.
	Everywhere

	// Serial is for reads of rows that Swap writes: it sees each swap that has succeeded,
	// in any data center, and completes one that was left half done.
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
	if l.quorumWrite == gocql.LocalQuorum && config.Datacenter != "" { // without its name there is one: see schema.Open
		l.everyWrite = gocql.EachQuorum
		if l.quorumRead != gocql.All {
			l.everyRead = gocql.EachQuorum // a quorum of all could miss that of one
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

// SameReads reports whether reads of two levels ask the same replicas.
func (s *Session) SameReads(a, b Level) bool { return s.levels.of(a, reads) == s.levels.of(b, reads) }
