package cql

import (
	"encoding/binary"
	"slices"
	"strings"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// JoinedBytes is the maximum size of the entries of a batch of several partitions, as counted
// by DataBytes. A node counts about the same, and by default logs a warning from 5 KiB on.
const JoinedBytes = 4 << 10

// rowBytes is what a node counts for a row in addition to sizeOf: timestamps, TTL and times of
// deletion.
const rowBytes = 24

// DataBytes approximates what a node counts for an entry in the size of a batch.
func (e Entry) DataBytes() int { return rowBytes + sizeOf(e.Args[e.Statement.KeyArgs:]) }

// Bytes approximates the size of an entry in a frame.
func (e Entry) Bytes() int { return sizeOf(e.Args) }

// ReplicaSet identifies the replicas of the entry's partition in this data center. Partitions
// with the same replicas have the same ReplicaSet; a batch of them can be sent to a node that
// is a replica of all. It is empty if the replicas are not known: there is no connection, or
// the statement does not say what its partition key is.
func (s *Session) ReplicaSet(e Entry) string {
	c, err := s.connection()
	if err != nil || e.Statement.KeyArgs == 0 {
		return ""
	}
	return c.hosts.replicaSet(routed{keyspace: s.config.Keyspace, key: partitionKey(e.Args[:e.Statement.KeyArgs])})
}

// replicaSet lists the replicas that are up.
func (p *hosts) replicaSet(of routed) string {
	next := p.HostSelectionPolicy.Pick(of)
	var ids []string
	for h := next(); h != nil; h = next() {
		if _, isOther := h.(other); isOther {
			break
		}
		ids = append(ids, h.Info().HostID())
	}
	if len(ids) == 1 {
		return ids[0]
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// routed is a statement for one partition, as far as the driver's policies need it.
type routed struct {
	keyspace string
	key      []byte
}

func (r routed) GetRoutingKey() ([]byte, error) { return r.key, nil }
func (r routed) Keyspace() string               { return r.keyspace }
func (r routed) Table() string                  { return "" }
func (r routed) IsIdempotent() bool             { return true }
func (r routed) GetHostID() string              { return "" }
func (r routed) Statement() gocql.Statement     { return nil }

// partitionKey returns the bytes that a node hashes: the value if the key has one column,
// otherwise for each column
//
//	length u16, value, 0
//
// Integers are those of bigint and timestamp (int64) and of int. A list stands for its first key:
// a statement with IN should list keys with the same ReplicaSet.
func partitionKey(args []any) []byte {
	if len(args) == 1 {
		return appendKeyPart(nil, args[0])
	}
	var key []byte
	for _, a := range args {
		at := len(key)
		key = appendKeyPart(append(key, 0, 0), a)
		binary.BigEndian.PutUint16(key[at:], uint16(len(key)-at-2))
		key = append(key, 0)
	}
	return key
}

func appendKeyPart(dst []byte, a any) []byte {
	switch a := a.(type) {
	case string:
		return append(dst, a...)
	case []byte:
		return append(dst, a...)
	case int64:
		return binary.BigEndian.AppendUint64(dst, uint64(a))
	case int:
		return binary.BigEndian.AppendUint32(dst, uint32(a))
	case [][]byte:
		if len(a) > 0 {
			return append(dst, a[0]...)
		}
	}
	return dst
}
