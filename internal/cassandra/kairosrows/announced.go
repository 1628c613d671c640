package kairosrows

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/schema"
)

// Where Varve nodes announce that they are about to remove index rows, in
// service_index: the key is a process, a slash and a slot. The value is
//
//	STAMP SEQUENCE LOW HIGH METRIC
//
// index rows of row times LOW to HIGH of a metric, of all metrics if METRIC is empty,
// may go under write timestamps up to STAMP. The sequence of a process grows by
// one, and its slot is the sequence modulo announceSlots: a reader that finds a number
// missing has looked too late, and assumes that anything may have been removed.
const (
	deletesKey = "Deletes"

	announceSlots = 64

	// announceLife is how long announcements stay, and maxUnlooked how long a node may
	// not have looked: it then assumes that anything may have been removed.
	announceLife = 24 * time.Hour
	maxUnlooked  = announceLife / 2
)

var (
	announceDelete = &cql.Statement{Name: "announce_delete", Level: cql.Quorum,
		Text: "INSERT INTO service_index (service, service_key, key, value) VALUES (?, ?, ?, ?) USING TTL ?"}
	readDeletes = &cql.Statement{Name: "read_announced_deletes", Level: cql.Quorum,
		Text: "SELECT key, value FROM service_index WHERE service = ? AND service_key = ?"}
)

// announced are the announcements that can be read, by process.
type announced map[string][]announcement

func announcedIn(ctx context.Context, ks *schema.Keyspace) (announced, error) {
	found := announced{}
	if !ks.Tables.ServiceIndex {
		return found, nil
	}
	rows := ks.Session.Query(ctx, readDeletes, schema.OwnService, deletesKey)
	defer rows.Close()
	var key, value *string
	for rows.Scan(&key, &value) {
		if key == nil || value == nil {
			continue
		}
		process, _, isSlot := strings.Cut(*key, "/")
		if !isSlot {
			continue // of an earlier version, which did not number them
		}
		found[process] = append(found[process], parseAnnouncement(*value))
	}
	if err := rows.Close(); err != nil {
		return nil, fmt.Errorf("look for deletes by other nodes: %w", err)
	}
	return found, nil
}

// floorMS is above the write timestamps of all removals that are announced.
func (all announced) floorMS() (floorMS int64) {
	for _, of := range all {
		for _, an := range of {
			floorMS = max(floorMS, an.stampMS+1)
		}
	}
	return floorMS
}

// mayHide reports whether a removal may hide index rows of a partition that were
// written under stampMS. An announcement that was overwritten counts as one of
// everything. It had a lower timestamp than all that its process has announced since,
// so it matters only where all of those are late enough.
func (all announced) mayHide(p partKey, stampMS int64) bool {
	for _, of := range all {
		late := 0
		for _, an := range of {
			if an.sequence == 0 {
				return true // it cannot be read
			}
			if an.stampMS < stampMS {
				continue
			}
			if late++; an.has(p) {
				return true
			}
		}
		if late == announceSlots {
			return true
		}
	}
	return false
}

// An announcement is a value in service_index.
type announcement struct {
	stampMS  int64
	sequence int64
	span
}

// write tells all nodes, by a process of a name of its own.
func (an announcement) write(ctx context.Context, ks *schema.Keyspace, process string) error {
	slot := fmt.Sprintf("%s/%d", process, an.sequence%announceSlots)
	value := fmt.Sprintf("%d %d %d %d %s", an.stampMS, an.sequence, an.lowMS, an.highMS, an.metric)
	if err := ks.Session.Exec(ctx, announceDelete, ks.Stamp(), schema.OwnService, deletesKey, slot, value, int(announceLife/time.Second)); err != nil {
		return fmt.Errorf("announce a delete to other nodes: %w", err)
	}
	return nil
}

// parseAnnouncement reads a value. What cannot be read, since a later version wrote it,
// means everything, every time it is read.
func parseAnnouncement(value string) announcement {
	fields := strings.SplitN(value, " ", 5)
	if len(fields) != 5 {
		return announcement{}
	}
	var numbers [4]int64
	for i := range numbers {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return announcement{}
		}
		numbers[i] = n
	}
	return announcement{numbers[0], numbers[1], span{fields[4], numbers[2], numbers[3]}}
}
