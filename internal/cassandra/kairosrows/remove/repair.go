package remove

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/work"
)

// RepairOptions are the options of a repair.
type RepairOptions struct {
	DryRun bool // only count faults
	Rate   int  // maximum rows and row keys checked per second, 0 for no limit

	// From, if not nil, is the report of an earlier repair that was interrupted:
	// this one continues there.
	From *RepairReport

	// Progress, if not nil, is called with the progress of the repair every few hundred rows.
	Progress func(RepairReport)

	// Keep, if not nil, is called with the same report at points from which a repair can
	// continue: the report can be passed as From.
	Keep func(RepairReport)

	pause func(ctx context.Context, d time.Duration) error // work.Pause, except in tests
}

// A RepairReport says what a repair has checked and which faults it has found. Unless it
// was a dry run, the repair has corrected these faults.
type RepairReport struct {
	Phase string // the present phase
	Token int64  // all partitions with this token or a lower one are done
	Done  bool   // the repair is complete

	Rows       int64 // of data_points
	RowKeys    int64 // of row_keys
	TagRows    int64 // of varve_row_index
	RowTimes   int64 // of row_key_time_index
	Names      int64 // of string_index
	Unreadable int64 // keys of data_points that are not in KairosDB's format

	Unindexed    int64 // rows with samples and without index rows: added
	DeadRowKeys  int64 // row keys without samples: removed
	DeadTagRows  int64 // rows of varve_row_index without a row key: removed
	DeadRowTimes int64 // row times without row keys: removed
	DeadNames    int64 // names of metrics without rows: removed
	Kept         int64 // row keys without samples that a KairosDB node may still use: left
}

// Share returns how much of the phase is done, from 0 to 1.
func (r RepairReport) Share() float64 {
	return float64(uint64(r.Token)+1<<63) / math.MaxUint64
}

// Changes returns how many faults were found.
func (r RepairReport) Changes() int64 {
	return r.Unindexed + r.DeadRowKeys + r.DeadTagRows + r.DeadRowTimes + r.DeadNames
}

// WriteText writes the report for people. dry says that it is the report of a dry run.
func (r RepairReport) WriteText(to io.Writer, dry bool) {
	added, removed := "added", "removed"
	if dry {
		added, removed = "would be added", "would be removed"
	}
	for _, row := range []struct {
		what string
		n    int64
		then string
	}{
		{"rows of data_points", r.Rows, ""},
		{"row keys", r.RowKeys, ""},
		{"rows of the inverted index", r.TagRows, ""},
		{"row times", r.RowTimes, ""},
		{"names of metrics", r.Names, ""},
		{"rows without index", r.Unindexed, added},
		{"row keys without samples", r.DeadRowKeys, removed},
		{"rows of the inverted index without row key", r.DeadTagRows, removed},
		{"row times without row keys", r.DeadRowTimes, removed},
		{"names of metrics without rows", r.DeadNames, removed},
		{"row keys without samples that KairosDB may use", r.Kept, "left"},
		{"keys of data_points that cannot be read", r.Unreadable, "left"},
	} {
		fmt.Fprintf(to, "%12d  %s", row.n, row.what)
		if row.then != "" && row.n > 0 {
			fmt.Fprintf(to, ": %s", row.then)
		}
		fmt.Fprintln(to)
	}
}

const (
	// repairParts is into how many ranges of tokens the scan of a table is divided. It is a
	// power of two.
	repairParts = 64

	// repairChunk is how many rows are checked together, before the rate is enforced.
	repairChunk = 2000

	// writersMoment is how long the repair waits for the row key of a tag row, which a server
	// may be writing at that moment. A repair waits at most secondLooks times.
	writersMoment = time.Second
	secondLooks   = 60
)

// A repair is one scan of all tables, by one goroutine.
//
// It removes index rows as a delete does, with a single announcement for all of them: see
// write.Writer. It adds index rows under the write timestamp after that, so that deletes that
// run meanwhile win.
type repair struct {
	d       *Deleter
	o       RepairOptions
	addMS   int64 // write timestamp of added rows
	dropMS  int64 // write timestamp of removals
	keep    int64 // index rows from this row time on are kept
	indexed bool  // tag_indexed_row_keys has rows
	legacy  bool  // row_key_index has rows
	seen    int64 // rows and row keys checked, for the rate
	began   time.Time
	report  RepairReport

	lookedAgain int // number of waits of writersMoment

	known     *seenSet
	facts     map[rowkey.Partition]partFacts // of recently checked partitions
	factsFrom time.Time                      // time of the oldest of them
}

// Repair scans data_points and the index tables, adds missing index rows, and removes index
// rows whose rows do not exist. It may run beside any other operation.
func (d *Deleter) Repair(ctx context.Context, o RepairOptions) (RepairReport, error) {
	if o.pause == nil {
		o.pause = work.Pause
	}
	r := &repair{d: d, o: o, began: d.now(), known: newSeenSet()}
	var err error
	if !o.DryRun {
		if r.dropMS, err = d.writer.Announce(ctx, rowkey.Everything); err != nil {
			return r.report, err
		}
		r.addMS = r.dropMS + 1
	}
	if r.keep, err = d.keepFrom(ctx); err == nil {
		if r.indexed, err = d.hasTagIndexed(ctx); err == nil && d.ks.Tables.RowKeyIndex {
			r.legacy, err = d.ks.Session.One(ctx, rowkey.AnyLegacyKey, nil, nil)
		}
	}
	// Each phase records in known the rows that later phases look for.
	phases := []repairPhase{
		{"tags without row key", r.tagRows, repairParts},
		{"rows without index rows", r.rows, repairParts},
		{"row keys that have no samples", r.rowKeys, repairParts},
		{"row times without row keys", r.rowTimes, repairParts},
		{"metrics without rows", r.names, 1}, // one partition
	}
	if !d.ks.Tables.Own {
		phases = phases[1:]
	}
	if err == nil {
		err = r.walk(ctx, phases)
	}
	r.tell()
	if err != nil {
		err = fmt.Errorf("repair, %s, %.0f%%: %w", r.report.Phase, 100*r.report.Share(), err)
	}
	return r.report, err
}

// A repairPhase scans one table.
type repairPhase struct {
	name  string
	walk  func(ctx context.Context, from, to int64) error // from exclusive, to inclusive
	parts uint64                                          // number of token ranges that are read one by one
}

// walk executes the phases, from where an earlier repair was interrupted.
func (r *repair) walk(ctx context.Context, phases []repairPhase) error {
	if from := r.o.From; from != nil {
		at := slices.IndexFunc(phases, func(p repairPhase) bool { return p.name == from.Phase })
		if at < 0 || from.Done {
			return fmt.Errorf("cannot continue at %q: an earlier version of Varve began the repair; begin again", from.Phase)
		}
		phases = phases[at:]
		r.report = *from
	}
	for i, phase := range phases {
		if i > 0 || r.o.From == nil {
			r.report.Phase, r.report.Token = phase.name, math.MinInt64
		}
		for from := r.report.Token; from < math.MaxInt64; from = r.report.Token {
			to := endOfPart(from, phase.parts)
			if err := phase.walk(ctx, from, to); err != nil {
				return err
			}
			r.reached(to)
		}
	}
	r.report.Done = true
	return nil
}

// endOfPart returns the inclusive end of the part of the ring that begins after the given
// token. No partition has the lowest token.
func endOfPart(token int64, parts uint64) int64 {
	width := math.MaxUint64/parts + 1
	if parts == 1 {
		return math.MaxInt64
	}
	if part := (uint64(token) + 1<<63) / width; part < parts-1 {
		return int64((part+1)*width + 1<<63)
	}
	return math.MaxInt64
}

// reached records that all partitions up to a token are done, and none after it.
func (r *repair) reached(token int64) {
	r.report.Token = token
	r.tell()
	if r.o.Keep != nil {
		r.o.Keep(r.report)
	}
}

func (r *repair) tell() {
	if r.o.Progress != nil {
		r.o.Progress(r.report)
	}
}

// pace waits until n more rows may be checked.
func (r *repair) pace(ctx context.Context, n int) error {
	r.seen += int64(n)
	if r.o.Rate <= 0 {
		return ctx.Err()
	}
	due := r.began.Add(time.Duration(float64(r.seen) / float64(r.o.Rate) * float64(time.Second)))
	return work.Pause(ctx, due.Sub(r.d.now()))
}
