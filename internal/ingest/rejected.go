package ingest

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// A Rejection is a refused input as /admin/rejected shows it.
type Rejection struct {
	Time       time.Time `json:"time"`
	Protocol   string    `json:"protocol"`
	Remote     string    `json:"remote"`
	Reason     string    `json:"reason"`
	Detail     string    `json:"detail"`
	Input      string    `json:"input"`       // cut to rejected_bytes
	InputBytes int       `json:"input_bytes"` // before the cut
}

// logEvery is the least time between two log lines about refused input.
const logEvery = 10 * time.Second

// rejectedRing keeps the latest refused inputs.
type rejectedRing struct {
	log *slog.Logger

	mu struct {
		sync.Mutex
		ring     []Rejection
		next     int
		full     bool
		total    uint64
		unlogged uint64
		logged   time.Time
	}
}

func newRejectedRing(kept int, log *slog.Logger) *rejectedRing {
	r := &rejectedRing{log: log}
	r.mu.ring = make([]Rejection, kept)
	return r
}

// add keeps rejections, which stand for n refused inputs, and logs the last of
// them unless a line was written within logEvery.
func (r *rejectedRing) add(now time.Time, n uint64, rejections ...Rejection) {
	if len(rejections) == 0 {
		return
	}
	r.mu.Lock()
	for _, x := range rejections {
		r.mu.ring[r.mu.next] = x
		r.mu.next++
		if r.mu.next == len(r.mu.ring) {
			r.mu.next, r.mu.full = 0, true
		}
	}
	r.mu.total += n
	r.mu.unlogged += n
	unlogged := r.mu.unlogged
	due := r.mu.logged.IsZero() || now.Sub(r.mu.logged) >= logEvery
	if due {
		r.mu.logged, r.mu.unlogged = now, 0
	}
	r.mu.Unlock()

	if due {
		x := rejections[len(rejections)-1]
		r.log.LogAttrs(context.Background(), slog.LevelWarn, "input refused, see /admin/rejected",
			slog.Uint64("count", unlogged), slog.String("protocol", x.Protocol), slog.String("remote", x.Remote),
			slog.String("reason", x.Reason), slog.String("detail", x.Detail))
	}
}

// latest returns the kept rejections, newest first, and how many there were.
func (r *rejectedRing) latest() ([]Rejection, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.mu.next
	if r.mu.full {
		n = len(r.mu.ring)
	}
	list := make([]Rejection, 0, n)
	for i := 1; i <= n; i++ {
		list = append(list, r.mu.ring[(r.mu.next-i+len(r.mu.ring))%len(r.mu.ring)])
	}
	return list, r.mu.total
}

func (r *rejectedRing) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	list, total := r.latest()
	body, err := json.MarshalIndent(struct {
		Total    uint64      `json:"total"`
		Rejected []Rejection `json:"rejected"`
	}{total, list}, "", " ")
	if err != nil {
		panic(err) // plain texts and numbers
	}
	w.Header().Set("Content-Type", "application/json;charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Write(append(body, '\n'))
}
