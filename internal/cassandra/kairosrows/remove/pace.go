package remove

import "time"

// A pace says how many rows a delete works on at once. More than a node does at once make the
// delete no faster: they stand in the node's queue, and what others ask stands behind them. So
// a delete takes more while each row takes about as long as with few, and fewer when it takes
// much longer. How long a row takes with few is looked at first, and now and then again, since
// what a node can do changes.
type pace struct {
	most int           // rows at once
	wide int           // rows at once, now
	few  time.Duration // that a row takes with few at once

	looks int // since the last one with few
	wider int // rows at once when that is over
}

const (
	paceFew   = 4
	paceLeast = 2
	paceLooks = 64 // of which one is with few

	// paceRounds is how many rows each of those that are worked on at once stands for until
	// the pace is looked at: some tenths of a second.
	paceRounds = 16
)

func newPace(most int) pace {
	few := min(paceFew, most)
	return pace{most: most, wide: few, wider: few}
}

// steadyPace is one that stays.
func steadyPace(wide int) pace { return pace{most: wide, wide: wide} }

// next is how many rows are done until took is called.
func (p *pace) next() int { return paceRounds * p.wide }

// took says how long n rows took, p.wide at once.
func (p *pace) took(n int, d time.Duration) {
	if n < p.wide {
		return // they were not as many at once
	}
	each := d * time.Duration(p.wide) / time.Duration(n)
	if p.looks++; p.looks == 1 {
		p.few, p.wide = each, p.wider
		return
	}
	switch {
	case each <= p.few*5/4:
		p.wide = min(p.most, p.wide+max(1, p.wide/2))
	case each > p.few*3/2:
		p.wide = min(p.wide, max(paceLeast, p.wide*2/3))
	}
	if p.looks == paceLooks {
		p.looks, p.wider = 0, p.wide
		p.wide = min(paceFew, p.most)
	}
}
