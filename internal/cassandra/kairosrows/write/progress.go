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

// A progress is what all attempts to write one source have done so far. While
// some replicas are away, or refuse a sample, an attempt writes what it can, and
// the next one only what is left.
type progress struct {
	owner *Writer
	epoch uint64                        // of what is known of index rows: all series that are done, and not settled, had theirs then
	parts map[rowkey.Partition]struct{} // that samples go to

	attempts int // to write it

	lock         sync.Mutex
	done         *roaring.Bitmap // series whose samples are written
	settled      *roaring.Bitmap // of them, those that count as written: their index rows are there
	refused      *roaring.Bitmap // series whose index rows Cassandra refuses
	suspects     *roaring.Bitmap // series that were sent together with others, and were not written
	refusedSince time.Time       // that Cassandra refuses something for a reason that is not known
}

// pending reports whether a series is still to be written.
func (p *progress) pending(id model.SeriesNumber) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	return !p.done.Contains(uint32(id)) && !p.refused.Contains(uint32(id))
}

// kept reports whether a series has samples that can be written.
func (p *progress) kept(id model.SeriesNumber) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	return !p.refused.Contains(uint32(id))
}

func (p *progress) finish(ids []model.SeriesNumber) {
	p.lock.Lock()
	defer p.lock.Unlock()
	addTo(p.done, ids)
}

// unsettled reports whether a series is written and does not count as that yet.
func (p *progress) unsettled(id model.SeriesNumber) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.done.Contains(uint32(id)) && !p.settled.Contains(uint32(id))
}

// settle lets all series that are written count as that, but those that are left.
func (p *progress) settle(left *roaring.Bitmap) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.settled.Or(roaring.AndNot(p.done, left))
}

// unwritten returns those of some series that do not count as written.
func (p *progress) unwritten(all iter.Seq[model.SeriesNumber]) *roaring.Bitmap {
	p.lock.Lock()
	defer p.lock.Unlock()
	left := roaring.New()
	for id := range all {
		if !p.settled.Contains(uint32(id)) && !p.refused.Contains(uint32(id)) {
			left.Add(uint32(id))
		}
	}
	return left
}

// addTo adds series to a set.
func addTo(set *roaring.Bitmap, ids []model.SeriesNumber) {
	for _, id := range ids {
		set.Add(uint32(id))
	}
}

func (p *progress) refuseSeries(id model.SeriesNumber) (first bool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.refused.CheckedAdd(uint32(id))
}

// suspect notes series that failed together: one of them may be the cause, so the
// next attempt sends each by itself.
func (p *progress) suspect(ids ...model.SeriesNumber) {
	p.lock.Lock()
	defer p.lock.Unlock()
	addTo(p.suspects, ids)
}

func (p *progress) suspected(id model.SeriesNumber) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.suspects.Contains(uint32(id))
}

// refusalPatience is how long a sample is kept that Cassandra refuses for an unknown
// reason while it takes others; then the sample is dropped. If an operator has forbidden
// writes by mistake, the operator has this long to see it in the log.
const refusalPatience = 10 * time.Minute

func refusalOf(err error) *cql.RefusedError {
	var refused *cql.RefusedError
	errors.As(err, &refused)
	return refused
}

// isolates reports whether some of what Cassandra refused together may be taken
// alone. If the reason is not known, what it has taken lately says so: when it
// takes nothing at all, parts would be refused too.
func (p *progress) isolates(err error) bool {
	refused := refusalOf(err)
	return refused != nil && (faultOfSample(refused.Reason) || maybeOfSample(refused.Reason) && p.othersTaken())
}

// drops reports whether one sample that Cassandra refuses is to be dropped.
func (p *progress) drops(err error) bool {
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
	now := p.owner.now()
	if p.refusedSince.IsZero() {
		p.refusedSince = now
	}
	return now.Sub(p.refusedSince) >= refusalPatience && p.othersTaken()
}

// othersTaken reports whether Cassandra has taken samples in the last minutes.
func (p *progress) othersTaken() bool {
	last := p.owner.lastWrite.Load()
	return last > 0 && p.owner.now().Sub(time.UnixMilli(last)) < refusalPatience
}

// faultOfSample says whether another sample may be taken where this one was
// refused. A fault of the schema or of the user's rights affects all samples:
// they stay in the spool until it is put right.
func faultOfSample(r cql.Reason) bool {
	switch r {
	case cql.TTLTooLong, cql.KeyTooLong, cql.RequestTooLarge, cql.BatchTooLarge, cql.ValueTooLarge:
		return true
	}
	return false
}

// maybeOfSample says of a reason that it may lie in the sample, or in how the
// cluster is configured.
func maybeOfSample(r cql.Reason) bool { return r == cql.GuardrailHit || r == cql.Invalid }
