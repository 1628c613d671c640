package remove

import "time"

// A pace controls how many rows a delete processes concurrently. More rows than a node can
// process concurrently make the delete no faster: they wait in the node's queue, and requests
// of others wait behind them. So the concurrency grows while each row takes about as long as at
// low concurrency, and shrinks when rows take much longer. The time of a row at low concurrency
// is measured first, and again at intervals, since the capacity of a node changes.
//
// Even a single row in progress occupies a processor of a node. So if this process writes
// samples at times, a delete that takes longer processes few rows concurrently and rests for three
// times as long as it works: in the middle of a round while samples are written, see turns, and for
// what is left of that after the round. Samples then wait for at most the few rows in progress.
type pace struct {
	most  int           // maximum number of rows in progress
	limit int           // the same at present: few while samples are written
	alone int           // number of rows in progress before samples were written
	wide  int           // number of rows in progress at present
	few   time.Duration // time of a row at low concurrency
	rests int           // multiple of the duration of a round that is rested after it

	worked time.Duration // without rests

	looks int // measurements since the last one at low concurrency
	wider int // concurrency to return to after it
}

const (
	paceFew   = 4
	paceLeast = 2
	paceLooks = 64 // one of so many measurements is at low concurrency

	// paceRounds times the concurrency is the number of rows between two measurements, which is
	// some tenths of a second.
	paceRounds = 16

	paceRests    = 3
	paceRestless = time.Second     // work before the first rest: small deletes do not rest
	paceRestMost = 3 * time.Second // maximum of one rest, after a round that took long
)

func newPace(most int) pace {
	few := min(paceFew, most)
	return pace{most: most, limit: most, wide: few, wider: few}
}

// restingPace returns a pace for deletes for which no samples wait.
func restingPace(most int) pace {
	p := newPace(most)
	p.rests = paceRests
	return p
}

// steadyPace returns a pace with constant concurrency.
func steadyPace(wide int) pace { return pace{most: wide, limit: wide, wide: wide} }

// next is how many rows to process before the next call of took.
func (p *pace) next() int { return paceRounds * p.wide }

// took reports how long n rows took with the concurrency p.wide.
func (p *pace) took(n int, d time.Duration) {
	if n < p.wide {
		return // too few rows to reach that concurrency
	}
	each := d * time.Duration(p.wide) / time.Duration(n)
	if p.looks++; p.looks == 1 {
		p.few, p.wide = each, min(p.limit, p.wider)
		return
	}
	switch {
	case each <= p.few*5/4:
		p.wide = min(p.limit, p.wide+max(1, p.wide/2))
	case each > p.few*3/2:
		p.wide = min(p.wide, max(paceLeast, p.wide*2/3))
	}
	if p.looks == paceLooks {
		p.looks, p.wider = 0, p.wide
		p.wide = min(paceFew, p.most)
	}
}

// share limits the concurrency while samples are written, and afterwards restores what it was
// before: the removal of index rows takes no measurements, which would raise it.
func (p *pace) share(samples bool) {
	few := min(paceFew, p.most)
	switch {
	case samples && p.limit > few:
		p.limit, p.alone, p.wide = few, p.wide, min(p.wide, few)
	case !samples && p.limit < p.most:
		p.limit, p.wide = p.most, max(p.wide, p.alone)
	}
}

// rest returns how long to rest after a round of work, while samples are written.
func (p *pace) rest(round time.Duration) time.Duration {
	p.worked += round
	if p.worked < paceRestless {
		return 0
	}
	return min(paceRestMost, time.Duration(p.rests)*round)
}
