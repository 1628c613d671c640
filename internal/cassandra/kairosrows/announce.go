package kairosrows

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"

	"varve/internal/cassandra/cql"
)

// Where Varve nodes announce deletes, in service_index. The key is the node, the
// value a stamp in milliseconds, a space, and something that no other
// announcement has.
const (
	ownService = "_Varve"
	deletesKey = "Deletes"
)

var readDeletes = &cql.Statement{Name: "read_announced_deletes", Text: "SELECT key, value FROM service_index WHERE service = ? AND service_key = ?"}

// Announcements keep a delete by one node from taking index rows away that
// another one relies on.
//
//	who deletes   1 announce   2 delete samples, see which rows are empty   3 delete their index rows
//	who writes    1 samples, believing that their index rows are there      2 look for announcements
//
// Either the writer sees the announcement, or its samples were there before it,
// and the row is not empty. If it sees one it forgets which index rows are there
// and writes those of the samples again, with a timestamp above the delete's:
// their own may be of long ago, when the samples have waited in a spool.
type announcements struct {
	ks *Keyspace

	mu      sync.Mutex
	own     string            // the key of this process
	lastMS  int64             // stamp of its last announcement
	seen    map[string]string // of others
	floorMS int64             // above the stamps of all deletes that were seen
}

// announce tells all nodes that index rows may go under timestamps up to
// stampMS.
func (a *announcements) announce(ctx context.Context, nowMS, stampMS int64) error {
	if !a.ks.Tables.ServiceIndex {
		return nil // others find out by index_refresh
	}
	a.mu.Lock()
	a.lastMS = max(stampMS, nowMS, a.lastMS+1)
	own, value := a.own, fmt.Sprintf("%d %s", a.lastMS, rand.Text())
	a.mu.Unlock()
	if err := a.ks.Set(ctx, ownService, deletesKey, own, value); err != nil {
		return fmt.Errorf("announce a delete to other nodes: %w", err)
	}
	return nil
}

// look reports whether another node has announced a delete since the last look.
func (a *announcements) look(ctx context.Context) (announced bool, err error) {
	if !a.ks.Tables.ServiceIndex || a.ks.Session == nil {
		return false, nil
	}
	now := map[string]string{}
	rows := a.ks.Session.Query(ctx, readDeletes, ownService, deletesKey)
	var node, value *string
	for rows.Scan(&node, &value) {
		if node != nil && value != nil {
			now[*node] = *value
		}
	}
	if err := rows.Close(); err != nil {
		return false, fmt.Errorf("look for deletes by other nodes: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(now, a.own)
	if maps.Equal(now, a.seen) {
		return false, nil
	}
	for _, value := range now {
		text, _, _ := strings.Cut(value, " ")
		if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
			a.floorMS = max(a.floorMS, ms+1)
		}
	}
	a.seen = now
	return true, nil
}

// above returns a timestamp for index rows that belong to samples of stampMS.
func (a *announcements) above(stampMS int64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(stampMS, a.floorMS)
}
