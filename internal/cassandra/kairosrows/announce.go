package kairosrows

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync"
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
	ownService = "_Varve"
	deletesKey = "Deletes"

	announceSlots = 64

	// announceLife is how long announcements stay, and maxUnlooked how long a node may
	// not have looked: it then assumes that anything may have been removed.
	announceLife = 24 * time.Hour
	maxUnlooked  = announceLife / 2
)

var (
	readDeletes = &cql.Statement{Name: "read_announced_deletes", Level: cql.Quorum,
		Text: "SELECT key, value FROM service_index WHERE service = ? AND service_key = ?"}
	announceDelete = &cql.Statement{Name: "announce_delete", Level: cql.Quorum,
		Text: "INSERT INTO service_index (service, service_key, key, value) VALUES (?, ?, ?, ?) USING TTL ?"}
)

// announcements are what this process and others have announced. See [Writer] for why.
type announcements struct {
	ks      *schema.Keyspace
	now     func() time.Time
	known   *known
	process string        // in announcements of this process
	sending chan struct{} // holds one while one is sent: they arrive in order

	mu       sync.Mutex
	sequence int64            // of the last announcement of this process
	lastMS   int64            // stamp of it
	seen     map[string]int64 // the highest sequence of each other process
	looked   time.Time        // at those
	floorMS  int64            // above the stamps of all that are known
}

func newAnnouncements(ks *schema.Keyspace, k *known, now func() time.Time) *announcements {
	return &announcements{ks: ks, now: now, known: k, process: rand.Text(), sending: make(chan struct{}, 1)}
}

// announce tells all nodes, this one first, that index rows of a span may be removed.
// It returns the write timestamp to remove them with: processes that know of
// the announcement write index rows with later ones.
//
// Without the table service_index nobody else can be told.
func (a *announcements) announce(ctx context.Context, s span) (stampMS int64, err error) {
	select {
	case a.sending <- struct{}{}:
		defer func() { <-a.sending }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	stampMS, sequence := a.next()
	a.known.forget(s)
	if !a.ks.Tables.ServiceIndex || a.ks.Session == nil {
		return stampMS, nil
	}
	slot := fmt.Sprintf("%s/%d", a.process, sequence%announceSlots)
	value := fmt.Sprintf("%d %d %d %d %s", stampMS, sequence, s.lowMS, s.highMS, s.metric)
	if err := a.ks.Session.Exec(ctx, announceDelete, a.ks.Stamp(), ownService, deletesKey, slot, value, int(announceLife/time.Second)); err != nil {
		return 0, fmt.Errorf("announce a delete to other nodes: %w", err)
	}
	return stampMS, nil
}

func (a *announcements) next() (stampMS, sequence int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lastMS = max(a.now().UnixMilli(), a.lastMS+1, a.floorMS)
	a.floorMS = a.lastMS + 1
	a.sequence++
	return a.lastMS, a.sequence
}

// begin looks for announcements for the first time, before anything is known that
// they could be about.
func (a *announcements) begin(ctx context.Context) error {
	a.mu.Lock()
	begun := !a.looked.IsZero()
	a.mu.Unlock()
	if begun {
		return nil
	}
	return a.look(ctx)
}

// look forgets what other processes have announced since the last look.
func (a *announcements) look(ctx context.Context) error {
	if !a.ks.Tables.ServiceIndex || a.ks.Session == nil {
		return nil
	}
	began := a.now()
	found, err := announcedIn(ctx, a.ks)
	if err != nil {
		return err
	}
	for _, s := range a.take(began, found) {
		a.known.forget(s)
	}
	return nil
}

// announced are the announcements that can be read, by process.
type announced map[string][]announcement

func announcedIn(ctx context.Context, ks *schema.Keyspace) (announced, error) {
	found := announced{}
	if !ks.Tables.ServiceIndex {
		return found, nil
	}
	rows := ks.Session.Query(ctx, readDeletes, ownService, deletesKey)
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

// wallTime is t without the monotonic clock, which stands still while the machine is
// suspended. Announcements expire meanwhile.
func wallTime(t time.Time) time.Time { return t.Round(0) }

// take notes what was found and returns what is to be forgotten.
func (a *announcements) take(began time.Time, found announced) (forget []span) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if silent := wallTime(began).Sub(wallTime(a.looked)); silent < 0 || silent > maxUnlooked || began.Sub(a.looked) > maxUnlooked {
		forget = append(forget, everything)
	}
	seen := map[string]int64{}
	for process, all := range found {
		if process == a.process {
			continue
		}
		last, there := a.seen[process], 0
		highest := last
		for _, an := range all {
			a.floorMS = max(a.floorMS, an.stampMS+1)
			switch {
			case an.sequence == 0:
				forget = append(forget, everything)
			case an.sequence > last:
				forget = append(forget, an.span)
				highest = max(highest, an.sequence)
				there++
			}
		}
		if highest-last != int64(there) {
			forget = append(forget, everything)
		}
		seen[process] = highest
	}
	a.seen, a.looked = seen, began
	return forget
}

// stamp is the write timestamp for index rows: above those of all removals that are
// known, and not that of their samples, which may be of long ago.
func (a *announcements) stamp() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(a.now().UnixMilli(), a.floorMS)
}

// An announcement is a value in service_index.
type announcement struct {
	stampMS  int64
	sequence int64
	span
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
