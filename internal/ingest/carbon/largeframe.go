package carbon

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"varve/internal/stream"
)

// largeFrames bounds how many large frames are in memory. While all places are taken, a frame that
// arrives slowly loses its place to a waiting frame, unless all waiting frames are from senders
// with more places. The next place goes to a waiting frame whose sender has the fewest places, so
// that a sender with many connections does not hold up others.
type largeFrames struct {
	limit    int
	within   time.Duration // a frame must arrive
	patience time.Duration // how long a frame may be slow
	enough   float64       // bytes per second that are not slow

	mu struct {
		sync.Mutex
		taken   map[*largeFrame]struct{}
		waiting []*largeFrame // the longest first
		looked  time.Time     // for slow frames
	}
}

// A largeFrame has a place, or waits for one.
type largeFrame struct {
	conn    *stream.Conn
	network netip.Prefix  // of the sender
	given   chan struct{} // closed once the frame has the place
	brought atomic.Int64  // bytes that have arrived since

	since time.Time // when it was given; zero once the frame has arrived; largeFrames.mu guards it
	lost  bool      // largeFrames.mu guards it
}

const (
	// maxLarge is how many large frames are in memory at once. Each must arrive within arriveWithin; others
	// wait in their sockets.
	maxLarge     = 64
	arriveWithin = 30 * time.Second

	// largePatience and largeEnough say which frames lose their places. At this rate the longest pickle
	// of the default takes four seconds.
	largePatience = time.Second
	largeEnough   = 256 << 10

	// slowPause is how often a frame that waits looks for slow ones.
	slowPause = 100 * time.Millisecond
)

func newLargeFrames() *largeFrames {
	s := &largeFrames{limit: maxLarge, within: arriveWithin, patience: largePatience, enough: largeEnough}
	s.mu.taken = map[*largeFrame]struct{}{}
	return s
}

// enter waits for a place. It returns nil if ctx ends before.
func (s *largeFrames) enter(ctx context.Context, c *stream.Conn, network netip.Prefix) *largeFrame {
	p := &largeFrame{conn: c, network: network, given: make(chan struct{})}
	s.mu.Lock()
	s.mu.waiting = append(s.mu.waiting, p)
	s.giveLocked()
	s.mu.Unlock()
	look := time.NewTicker(slowPause)
	defer look.Stop()
	for {
		select {
		case <-p.given:
			return p
		case <-ctx.Done():
			s.leave(p)
			return nil
		case <-look.C:
			s.endSlow(time.Now())
		}
	}
}

// giveLocked gives free places to frames that wait. s.mu must be held.
func (s *largeFrames) giveLocked() {
	for len(s.mu.taken) < s.limit && len(s.mu.waiting) > 0 {
		next := s.nextLocked(s.placesLocked())
		p := s.mu.waiting[next]
		s.mu.waiting = slices.Delete(s.mu.waiting, next, next+1)
		s.mu.taken[p] = struct{}{}
		p.since = time.Now()
		p.conn.SetReadDeadline(p.since.Add(s.within)) // here, since endSlow may set an earlier one
		close(p.given)
	}
}

// placesLocked returns how many places each sender has. s.mu must be held.
func (s *largeFrames) placesLocked() map[netip.Prefix]int {
	has := map[netip.Prefix]int{}
	for p := range s.mu.taken {
		has[p.network]++
	}
	return has
}

// nextLocked returns which of the frames that wait gets the next place. s.mu must be held.
func (s *largeFrames) nextLocked(has map[netip.Prefix]int) (next int) {
	for i, p := range s.mu.waiting {
		if has[p.network] < has[s.mu.waiting[next].network] {
			next = i
		}
	}
	return next
}

// endSlow takes the place away from the slowest frame, if that is slow and others wait. Its
// connection then ends, which frees the place. A frame keeps its place if its sender has fewer
// places than the sender of each waiting frame: otherwise a sender with many fast connections could
// end those of all slower senders.
func (s *largeFrames) endSlow(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.waiting) == 0 || now.Sub(s.mu.looked) < slowPause/2 { // each frame that waits calls
		return
	}
	s.mu.looked = now
	has := s.placesLocked()
	fewest := has[s.mu.waiting[s.nextLocked(has)].network]
	var slowest *largeFrame
	least := s.enough
	for p := range s.mu.taken {
		if p.lost {
			return // its place will be free in a moment
		}
		if p.since.IsZero() || now.Sub(p.since) < s.patience || has[p.network] < fewest {
			continue
		}
		if rate := float64(p.brought.Load()) / now.Sub(p.since).Seconds(); rate < least {
			slowest, least = p, rate
		}
	}
	if slowest != nil {
		slowest.lost = true
		slowest.conn.SetReadDeadline(now)
	}
}

// arrived records that p has arrived (whole), or that its connection has ended. It returns false if
// the connection ended because the frame had lost its place. A frame that is whole keeps its place,
// even if the last byte came too late.
func (s *largeFrames) arrived(p *largeFrame, whole bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.since = time.Time{}
	p.lost = p.lost && !whole
	return !p.lost
}

// leave gives up a place, or the wait for one.
func (s *largeFrames) leave(p *largeFrame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.taken, p)
	if i := slices.Index(s.mu.waiting, p); i >= 0 {
		s.mu.waiting = slices.Delete(s.mu.waiting, i, i+1)
	}
	s.giveLocked()
}
