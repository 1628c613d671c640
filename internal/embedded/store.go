package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/blockfile"
	"varve/internal/diskspace"
	"varve/internal/embedded/catalogue"
	"varve/internal/embedded/expiry"
	"varve/internal/embedded/folding"
	"varve/internal/embedded/overlay"
	"varve/internal/embedded/partition"
	"varve/internal/growth"
	"varve/internal/head"
	"varve/internal/index"
	"varve/internal/model"
	"varve/internal/notify"
	"varve/internal/record"
	"varve/internal/registry"
	"varve/internal/retention"
	"varve/internal/rowtime"
	"varve/internal/store"
	"varve/internal/wal"
	"varve/internal/writelog"
)

// Options are what a store needs from its surroundings.
type Options struct {
	Section    store.Section         // of Config in the configuration
	Registerer prometheus.Registerer // nil = metrics are not exposed
	Logger     *slog.Logger          // nil = nothing is logged
	Now        func() time.Time      // nil = time.Now

	Opening *Opening // receives the progress of Open; may be nil

	// Book says at which resolution, and for how long, the samples of each series are
	// kept. nil = as they were sent, forever.
	Book *retention.Shelf

	// RulesUnknown means that a server of this store may have a Book that this process does not
	// know. So all written samples count as late: see late.go.
	RulesUnknown bool

	salvage *logSalvage // nil = damage to the log is an error
	held    bool        // Store.merging is locked from the start: a test calls merges itself

	// Fatal is called when the catalogue cannot be written any more. It must
	// not return: end the process. nil = panic. Whatever was acknowledged is in
	// the log, and the next start on a sound disk finds it.
	Fatal func(reason string)

	// EndWhenFull makes a full disk a reason for Fatal while the store opens. A server waits
	// until there is space.
	EndWhenFull bool
}

// refs has methods of store.Appender.
type refs = writelog.Refs

// values has the methods of store.KeyValues.
type values = catalogue.Values

// Store is the embedded store. It implements [store.Store].
type Store struct {
	refs
	*values

	fs      vfs.FS
	dir     string
	cfg     Config
	section store.Section // of cfg
	logger  *slog.Logger
	now     func() time.Time
	width   rowtime.Spec
	place   partition.Place // of block files

	salvage *logSalvage // for a repair, else nil
	opening *Opening    // may be nil

	lock      io.Closer
	catalogue *catalogue.Catalogue
	log       *writelog.Log
	cache     *blockfile.Cache
	series    *registry.Registry
	index     *index.Index
	growth    growth.Counts
	metrics   *metrics

	checkpointing sync.Mutex
	pending       *swap // a checkpoint that failed half way; guarded by checkpointing

	vacated    *vacated           // ids that will be reused soon; guarded by checkpointing
	vacantFrom model.SeriesNumber // where the next search for such ids begins; guarded by checkpointing

	merging        sync.Mutex
	mergesWait     bool            // merges wait for space, and that was logged; guarded by merging
	rulesSeen      *retention.Book // the rules when the merger last looked; guarded by merging
	rulesChangedMS int64           // when the merger found other rules than before; at first, the start; guarded by merging
	heldBytes      atomic.Int64    // of files that were held back when the merger last looked
	opened         time.Time

	backingUp sync.Mutex // one backup at a time; taken before all others

	backedUpBeside map[string]func(dir string) error // see AlsoBackUp; backingUp guards it
	installing     sync.Mutex

	expiry struct { // one search at a time
		sync.Mutex
		allowed expiry.Allowance // of scans
	}

	savedDeletions uint64 // up to this sequence, the catalogue has the deletions that hide something; guarded by installing

	order struct {
		*sync.Mutex                      // the log's
		define      []record.Definition  // series introduced since the last checkpoint's swap
		forget      []model.SeriesNumber // series forgotten since then
		deletions   uint64               // sequence of the last deletion
		unsynced    []loggedDeletion     // the last deletions; see undurable
		erasing     *erasing             // the deletion that the active head has not applied, or nil
		doubtful    *roaring.Bitmap      // series that may be empty, after deletes that were cancelled; nil = none
		late        bool                 // the active head has samples that arrived late, see arrivesLate
	}

	leaving  catalogue.Leaving
	holds    *folding.Holds
	policies policies
	journal  journal

	// cutting: deletions are logged, or a fold is committed, but not both at once.
	cutting sync.RWMutex

	mu      sync.Mutex
	current *state
	held    map[*state]struct{} // states with refs > 0

	active      atomic.Pointer[head.Head] // changed under order
	frozenBytes atomic.Int64

	// frozenRecords is the number of series that the frozen head has room for. Together with the memory
	// of the machine and diskRoom, it determines how large heads may become: see means.
	frozenRecords atomic.Int64
	memory        int64
	diskRoom      atomic.Int64

	definedBytes atomic.Int64 // keys of order.define; changed under order

	nextFile atomic.Uint64
	disk     *diskspace.Guard // of the log

	checkpointFailed atomic.Pointer[error] // last checkpoint's error, nil after a good one
	full             chan struct{}         // wakes the checkpointer
	filesChanged     chan struct{}         // wakes the merger
	room             *notify.Notifier      // notified by each checkpoint

	background sync.WaitGroup
	stop       context.CancelFunc
	ctx        context.Context
	cursors    overlay.Pool
}

var _ store.Store = (*Store)(nil)

// Healthy returns nil while the store accepts writes, else why it does not.
func (s *Store) Healthy() error {
	if err := s.log.Writable(); err != nil {
		return err
	}
	if err := s.log.Current().Err(); err != nil {
		return &store.UnavailableError{Reason: "the write-ahead log failed; fix the disk, then restart the server", Err: wal.Cause(err)}
	}
	if e := s.checkpointFailed.Load(); e != nil {
		return &store.UnavailableError{Reason: "samples cannot be written to files; will retry", Err: *e}
	}
	return nil
}

// SeriesBytes implements store.Appender. A name that is not in the index yet counts
// with the most memory that it can take there.
func (s *Store) SeriesBytes() int64 {
	all, unlogged := s.series.Bytes()
	return all + unlogged + s.index.Bytes()
}

// Close writes everything to files, stops the background work and releases the
// directory. Views still open keep working until they are closed.
func (s *Store) Close() error {
	if err := s.log.Shut(); err != nil {
		return err
	}
	s.stop()
	s.room.Notify()
	s.background.Wait()
	var errs []error
	if s.log.Failure() == nil && s.log.Current().Err() == nil {
		if err := s.checkpoint(); err != nil {
			errs = append(errs, fmt.Errorf("last checkpoint (its samples remain in the log): %w", err))
		}
	}
	errs = append(errs, s.log.Close())
	s.publish(func(st *state) { st.files = nil })
	errs = append(errs, s.catalogue.Close(), s.lock.Close())
	return errors.Join(errs...)
}
