package rowkey

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
// It means that index rows of row times LOW to HIGH of METRIC, or of all metrics if METRIC is
// empty, may be removed under write timestamps up to STAMP. Each announcement of a process has
// the next sequence number. Its slot is the sequence modulo AnnouncementSlots, so a reader that
// finds a number missing has read too late, and assumes that anything may have been removed.
const (
	deletesKey = "Deletes"

	// AnnouncementSlots is how many announcements of a process can be read at once.
	AnnouncementSlots = 64

	// announceLife is how long announcements are kept. A node that has not read them for
	// MaxUnlooked assumes that anything may have been removed.
	announceLife = 24 * time.Hour
	MaxUnlooked  = announceLife / 2
)

var (
	announceDelete = &cql.Statement{Name: "announce_delete", Level: cql.Everywhere,
		Text: "INSERT INTO service_index (service, service_key, key, value) VALUES (?, ?, ?, ?) USING TTL ?"}
	readDeletes = &cql.Statement{Name: "read_announced_deletes", Level: cql.Quorum,
		Text: "SELECT key, value FROM service_index WHERE service = ? AND service_key = ?"}
)

// Announced are the announcements that can be read, by process.
type Announced map[string][]Announcement

// ReadAnnounced reads the announcements of all processes in a keyspace.
func ReadAnnounced(ctx context.Context, ks *schema.Keyspace) (Announced, error) {
	found := Announced{}
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
			continue // from an earlier version, which did not number announcements
		}
		found[process] = append(found[process], parseAnnouncement(*value))
	}
	if err := rows.Close(); err != nil {
		return nil, fmt.Errorf("look for deletes by other nodes: %w", err)
	}
	return found, nil
}

// FloorMS is above the write timestamps of all announced removals.
func (all Announced) FloorMS() (floorMS int64) {
	for _, of := range all {
		for _, an := range of {
			floorMS = max(floorMS, an.StampMS+1)
		}
	}
	return floorMS
}

// MayHide reports whether a removal may hide index rows of a partition that were written under
// stampMS. An overwritten announcement counts as an announcement of everything. Its timestamp
// was lower than those of all later announcements of its process, so it matters only if all of
// these are at or above stampMS.
func (all Announced) MayHide(p Partition, stampMS int64) bool {
	for _, of := range all {
		late := 0
		for _, an := range of {
			if an.Sequence == 0 {
				return true // unreadable
			}
			if an.StampMS < stampMS {
				continue
			}
			if late++; an.Has(p) {
				return true
			}
		}
		if late == AnnouncementSlots {
			return true
		}
	}
	return false
}

// An Announcement says that index rows of a span may be removed, under write timestamps up to
// StampMS. Sequence 0 marks an announcement that could not be parsed.
type Announcement struct {
	StampMS  int64
	Sequence int64
	Span
}

// Write publishes the announcement to all nodes. process names the announcing process.
func (an Announcement) Write(ctx context.Context, ks *schema.Keyspace, process string) error {
	slot := fmt.Sprintf("%s/%d", process, an.Sequence%AnnouncementSlots)
	value := fmt.Sprintf("%d %d %d %d %s", an.StampMS, an.Sequence, an.LowMS, an.HighMS, an.Metric)
	if err := ks.Session.Exec(ctx, announceDelete, ks.Stamp(), schema.OwnService, deletesKey, slot, value, int(announceLife/time.Second)); err != nil {
		return fmt.Errorf("announce a delete to other nodes: %w", err)
	}
	return nil
}

// parseAnnouncement reads a value. A value that it cannot parse, since a later version wrote
// it, counts as an announcement that concerns everything, each time it is read.
func parseAnnouncement(value string) Announcement {
	fields := strings.SplitN(value, " ", 5)
	if len(fields) != 5 {
		return Announcement{}
	}
	var numbers [4]int64
	for i := range numbers {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return Announcement{}
		}
		numbers[i] = n
	}
	return Announcement{numbers[0], numbers[1], Span{fields[4], numbers[2], numbers[3]}}
}
