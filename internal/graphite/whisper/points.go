package whisper

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"varve/internal/retention"
)

// A Point is a value at a time in seconds.
type Point struct {
	Time  int64
	Value float64
}

// A Left counts points in a file that are not part of the history.
type Left struct {
	Misplaced int64 // in a slot that is not that of their time: the file is damaged
	NotFinite int64 // NaN or infinite
	Future    int64 // later than now
}

// pieceBytes is the number of bytes of an archive that are read at once.
const pieceBytes = 4096 * pointBytes

// History calls yield for the known points of all archives, in batches and in strictly
// ascending time. now is in seconds. A batch is valid until yield returns. An error of
// yield ends the reading.
//
// A coarser archive contributes points that are older than the oldest known point of all
// finer archives: a point is used if its bucket ends before that time. A point whose
// bucket contains that time is used, too, if the finer archive no longer reaches back to
// the beginning of the bucket, unless points are sums: the finer points in the bucket
// would count twice.
//
// A slot that was not written in the last revolution of a ring still has an older point.
// Such points are not known, because Whisper never returns them. The revolution ends with
// the newest point of the archive, not with now, so that a path that is no longer written
// keeps its finest points.
func (f *File) History(ctx context.Context, now int64, yield func(archive int, points []Point) error) (left Left, err error) {
	rings := make([]ring, len(f.Archives))
	edge := ring{oldest: math.MaxInt64} // the finer archive with the oldest known point
	for i, a := range f.Archives {
		r, err := f.ring(ctx, a, now, &left)
		if err != nil {
			return left, fmt.Errorf("archive %d: %w", i, err)
		}
		r.before = f.before(edge, a.Step)
		if !r.empty() && r.oldest < edge.oldest {
			edge = r
		}
		rings[i] = r
	}
	for i, r := range slices.Backward(rings) {
		if err := f.emit(ctx, r, func(points []Point) error { return yield(i, points) }); err != nil {
			return left, fmt.Errorf("archive %d: %w", i, err)
		}
	}
	return left, nil
}

// before returns the time at which the points that an archive with this step contributes
// end. edge is the finer archive whose oldest point follows them.
func (f *File) before(edge ring, step int64) int64 {
	if edge.oldest == math.MaxInt64 {
		return edge.oldest
	}
	bucket := edge.oldest - edge.oldest%step
	cut := bucket < edge.newest-edge.Keep()+edge.Step // the finer archive does not reach back to its beginning
	if cut && f.Method != retention.Sum && f.Method != retention.AverageZero {
		return edge.oldest
	}
	return bucket
}

// A ring is an archive and the bounds of its points.
type ring struct {
	Archive
	base           int64 // time in the first slot
	oldest, newest int64 // of the known points; newest is 0 if there are none
	before         int64 // a finer archive contributes points from this time on
}

func (r *ring) empty() bool { return r.newest == 0 }

// inPlace reports whether a slot is that of a time.
func (r *ring) inPlace(slot, time int64) bool {
	return time%r.Step == 0 && r.base%r.Step == 0 && r.slot(time) == slot
}

func (r *ring) slot(time int64) int64 {
	steps := (time - r.base) / r.Step % r.Points
	if steps < 0 {
		steps += r.Points
	}
	return steps
}

// known reports whether Whisper would return a point.
func (r *ring) known(slot int64, p Point) bool {
	return p.Time > max(r.newest-r.Keep(), 0) && p.Time <= r.newest && r.inPlace(slot, p.Time) && finite(p.Value)
}

func finite(v float64) bool { return v-v == 0 }

// ring finds the bounds of an archive. It counts in left the points that are not used.
func (f *File) ring(ctx context.Context, a Archive, now int64, left *Left) (ring, error) {
	r := ring{Archive: a}
	err := f.slots(ctx, a, 0, 1, func(_ int64, p Point) error { r.base = p.Time; return nil })
	if err != nil {
		return r, err
	}
	err = f.slots(ctx, a, 0, a.Points, func(slot int64, p Point) error {
		switch {
		case p.Time == 0:
		case r.base == 0 || !r.inPlace(slot, p.Time):
			left.Misplaced++
		case p.Time > now:
			left.Future++
		case !finite(p.Value):
			left.NotFinite++
		default:
			r.newest = max(r.newest, p.Time)
		}
		return nil
	})
	if err != nil || r.empty() {
		return r, err
	}
	r.oldest = r.newest
	err = f.slots(ctx, a, 0, a.Points, func(slot int64, p Point) error {
		if p.Time < r.oldest && r.known(slot, p) {
			r.oldest = p.Time
		}
		return nil
	})
	return r, err
}

// emit yields the known points of a ring before r.before, from the oldest slot on.
func (f *File) emit(ctx context.Context, r ring, yield func([]Point) error) error {
	if r.empty() || r.oldest >= r.before {
		return nil
	}
	batch := make([]Point, 0, pieceBytes/pointBytes)
	last := r.newest - r.Keep()
	take := func(slot int64, p Point) error {
		if p.Time <= last || p.Time >= r.before || !r.known(slot, p) {
			return nil
		}
		last = p.Time
		if batch = append(batch, p); len(batch) < cap(batch) {
			return nil
		}
		err := yield(batch)
		batch = batch[:0]
		return err
	}
	first := (r.slot(r.newest) + 1) % r.Points
	if err := f.slots(ctx, r.Archive, first, r.Points-first, take); err != nil {
		return err
	}
	if err := f.slots(ctx, r.Archive, 0, first, take); err != nil {
		return err
	}
	if len(batch) == 0 {
		return nil
	}
	return yield(batch)
}

// slots calls do for n slots of an archive, the first of which is from.
func (f *File) slots(ctx context.Context, a Archive, from, n int64, do func(slot int64, p Point) error) error {
	buf := make([]byte, min(n*pointBytes, pieceBytes))
	for n > 0 {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		piece := buf[:min(n*pointBytes, pieceBytes)]
		if got, err := f.r.ReadAt(piece, a.offset+from*pointBytes); got < len(piece) {
			return fmt.Errorf("read points: %w", err)
		}
		for i := 0; i < len(piece); i += pointBytes {
			p := Point{
				Time:  int64(binary.BigEndian.Uint32(piece[i:])),
				Value: math.Float64frombits(binary.BigEndian.Uint64(piece[i+4:])),
			}
			if err := do(from, p); err != nil {
				return err
			}
			from++
			n--
		}
	}
	return nil
}
