package write

import (
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/model"
)

// A progress records what the attempts to write one source have done so far. While some
// replicas are down, or refuse a sample, an attempt writes what it can, and the next attempt
// writes only the rest.
type progress struct {
	epoch uint64                        // of Writer.known: at this epoch, the index rows of all series that are done but not settled existed
	parts map[rowkey.Partition]struct{} // partitions of the rows that get samples

	attempts int             // number of attempts so far
	settled  *roaring.Bitmap // series of done that count as written: their index rows exist

	done     seriesSet // series whose samples are written
	refused  seriesSet // series whose index rows Cassandra refuses
	suspects seriesSet // series that failed in a batch with others: one of them may be the cause, so the next attempt sends each by itself

	lock         sync.Mutex
	refusedSince time.Time // since when Cassandra refuses something for an unknown reason
}

// A seriesSet is a set of series that several goroutines use.
type seriesSet struct {
	mu  sync.Mutex
	ids roaring.Bitmap
}

func (s *seriesSet) has(id model.SeriesNumber) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids.Contains(uint32(id))
}

// add adds series, and reports whether one was absent.
func (s *seriesSet) add(ids ...model.SeriesNumber) (added bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		added = s.ids.CheckedAdd(uint32(id)) || added
	}
	return added
}

func (s *seriesSet) count() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids.GetCardinality()
}

func (s *seriesSet) clone() *roaring.Bitmap {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids.Clone()
}

// pending reports whether a series has yet to be written.
func (p *progress) pending(id model.SeriesNumber) bool { return !p.done.has(id) && !p.refused.has(id) }

// unwritten returns the series of all that do not count as written.
func (p *progress) unwritten(all iter.Seq[model.SeriesNumber]) *roaring.Bitmap {
	left := roaring.New()
	for id := range all {
		if !p.settled.Contains(uint32(id)) && !p.refused.has(id) {
			left.Add(uint32(id))
		}
	}
	return left
}

// refusalPatience is how long a sample is retried that Cassandra refuses for an unknown reason
// while it accepts others; then the sample is dropped. An operator who has forbidden writes by
// mistake has this long to see it in the log.
const refusalPatience = 10 * time.Minute

func refusalOf(err error) *cql.RefusedError {
	refused, _ := errors.AsType[*cql.RefusedError](err)
	return refused
}

// isolates reports whether Cassandra may accept parts of what it refused as a whole. If the
// reason is unknown, that depends on whether it has accepted other samples recently: if it
// accepts nothing at all, it would refuse the parts too.
func (p *writePass) isolates(err error) bool {
	refused := refusalOf(err)
	return refused != nil && (faultOfSample(refused.Reason) || maybeOfSample(refused.Reason) && p.w.WroteWithin(refusalPatience))
}

// drops reports whether a sample that Cassandra refuses should be dropped.
func (p *writePass) drops(err error) bool {
	refused := refusalOf(err)
	switch {
	case refused == nil:
		return false
	case faultOfSample(refused.Reason):
		return true
	case !maybeOfSample(refused.Reason):
		return false
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	now := p.w.now()
	if p.refusedSince.IsZero() {
		p.refusedSince = now
	}
	return now.Sub(p.refusedSince) >= refusalPatience && p.w.WroteWithin(refusalPatience)
}

// faultOfSample reports whether the reason for a refusal lies in the sample, so that others may
// be accepted. A fault of the schema or of the user's rights affects all samples: they stay in
// the spool until it is corrected.
func faultOfSample(r cql.Reason) bool {
	switch r {
	case cql.TTLTooLong, cql.KeyTooLong, cql.RequestTooLarge, cql.BatchTooLarge, cql.ValueTooLarge:
		return true
	}
	return false
}

// maybeOfSample reports whether the reason may lie either in the sample or in the cluster's
// configuration.
func maybeOfSample(r cql.Reason) bool { return r == cql.GuardrailHit || r == cql.Invalid }
