package kairosrows

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// RepairOptions say how a repair is done.
type RepairOptions struct {
	DryRun bool // only count
	Rate   int  // most rows and row keys that are looked at per second, 0 for no bound

	// Grace protects index rows that were written less than this before the
	// repair: their samples may be on the way. 0 means an hour. It has to be
	// longer than index_refresh of all Varve nodes.
	Grace time.Duration

	// Progress, if not nil, is told the numbers so far after each part of the
	// walk.
	Progress func(RepairReport)
}

// A RepairReport says what a repair has looked at and found. What it found it
// has put right, unless it is a dry run.
type RepairReport struct {
	Phase       string // what is walked over at present
	Part, Parts int    // of this phase

	Rows       int64 // of data_points
	RowKeys    int64 // of row_keys
	TagRows    int64 // of varve_row_index
	RowTimes   int64 // of row_key_time_index
	Names      int64 // of string_index
	Unreadable int64 // keys of data_points that are none of KairosDB's

	Unindexed    int64 // rows with samples and without index rows: added
	DeadRowKeys  int64 // row keys without samples: removed
	DeadTagRows  int64 // rows of varve_row_index without a row key: removed
	DeadRowTimes int64 // row times without row keys: removed
	DeadNames    int64 // names of metrics without rows: removed
	Kept         int64 // row keys without samples that a KairosDB node may still use: left
}

// Changes is how many faults were found.
func (r RepairReport) Changes() int64 {
	return r.Unindexed + r.DeadRowKeys + r.DeadTagRows + r.DeadRowTimes + r.DeadNames
}

const (
	// repairParts is how many ranges of tokens a table is walked in.
	repairParts = 64

	// repairChunk is how many rows are looked at before the rate is kept.
	repairChunk = 500

	repairGrace = time.Hour
)

// A repair is one walk over all tables.
//
// Index rows are removed with a write timestamp of Grace before the repair
// began, so that those which were written since, for samples that are on their
// way, survive. They are added with the time at which it began, so that deletes
// that ran meanwhile win. A row from which index rows were removed is looked at
// once more.
type repair struct {
	d       *Deleter
	o       RepairOptions
	addMS   int64 // write timestamp of what is added
	dropMS  int64 // and of what is removed
	keep    int64 // row times from which on index rows stay
	indexed bool  // tag_indexed_row_keys has rows
	legacy  bool  // row_key_index has
	seen    atomic.Int64
	began   time.Time
	report  RepairReport // of the one goroutine that walks; counters in counts

	counts struct {
		unindexed, deadRowKeys, deadTagRows, kept atomic.Int64
	}
}

// Repair walks over data_points and the index tables, finds rows that are not in
// the index and index rows that lead nowhere, and puts them right. It may run
// beside all else; it takes some statements for each row and row key.
func (d *Deleter) Repair(ctx context.Context, o RepairOptions) (RepairReport, error) {
	if o.Grace == 0 {
		o.Grace = repairGrace
	}
	now := d.now()
	r := &repair{d: d, o: o, addMS: now.UnixMilli(), dropMS: now.Add(-o.Grace).UnixMilli(), began: now}
	var err error
	if r.keep, err = d.keepFrom(ctx); err == nil {
		if r.indexed, err = d.hasTagIndexed(ctx); err == nil && d.ks.Tables.RowKeyIndex {
			r.legacy, err = d.ks.Session.One(ctx, readAnyLegacyKey, nil, nil)
		}
	}
	phases := []struct {
		name string
		walk func(ctx context.Context, from, to int64) error
		skip bool
	}{
		{"rows without index", r.rows, false},
		{"row keys without samples", r.rowKeys, false},
		{"tags without row key", r.tagRows, !d.ks.Tables.Own},
		{"row times without row keys", r.rowTimes, false},
	}
	for _, phase := range phases {
		if err != nil || phase.skip {
			continue
		}
		r.report.Phase, r.report.Part, r.report.Parts = phase.name, 0, repairParts
		for part := 0; part < repairParts && err == nil; part++ {
			from, to := tokens(part)
			if err = phase.walk(ctx, from, to); err == nil {
				r.tell(part + 1)
			}
		}
	}
	if err == nil {
		r.report.Phase, r.report.Part, r.report.Parts = "metrics without rows", 0, 1
		if err = r.names(ctx); err == nil {
			r.tell(1)
		}
	}
	r.tell(r.report.Part)
	if err != nil {
		err = fmt.Errorf("repair, %s, part %d of %d: %w", r.report.Phase, r.report.Part+1, r.report.Parts, err)
	}
	return r.report, err
}

// tokens returns a part of the ring: from exclusive, to inclusive. No partition
// has the lowest token.
func tokens(part int) (from, to int64) {
	const width = math.MaxUint64/repairParts + 1
	at := func(i int) int64 { return int64(uint64(i)*width + 1<<63) }
	if part == repairParts-1 {
		return at(part), math.MaxInt64
	}
	return at(part), at(part + 1)
}

func (r *repair) tell(part int) {
	r.report.Part = part
	r.report.Unindexed, r.report.DeadRowKeys = r.counts.unindexed.Load(), r.counts.deadRowKeys.Load()
	r.report.DeadTagRows, r.report.Kept = r.counts.deadTagRows.Load(), r.counts.kept.Load()
	if r.o.Progress != nil {
		r.o.Progress(r.report)
	}
}

// pace waits until n more rows may be looked at.
func (r *repair) pace(ctx context.Context, n int) error {
	seen := r.seen.Add(int64(n))
	if r.o.Rate <= 0 {
		return ctx.Err()
	}
	due := r.began.Add(time.Duration(float64(seen) / float64(r.o.Rate) * float64(time.Second)))
	wait := due.Sub(r.d.now())
	if wait <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
