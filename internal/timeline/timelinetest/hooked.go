package timelinetest

import (
	"context"
	"time"

	"varve/internal/timeline"
)

// A Hooked shelf calls the test before and after calls of some methods, so that the test can count
// calls, let them fail, or do something meanwhile. It is a timeline.Whole only through whole.
type Hooked struct {
	timeline.Shelf
	Before Hooks // their errors fail the calls, which the shelf then does not get
	After  Hooks // after calls that succeed; their errors fail the calls all the same
}

// Hooks has functions by the name of a method: Put, Slice, Mark, Marks, History, SetHistory, Payload,
// DropPayloads.
type Hooks map[string]func(Call) error

// A Call has those arguments of a call that tests look at.
type Call struct {
	Entries []timeline.Placed     // of Put
	Part    timeline.Part         // of Slice
	Keys    []timeline.PayloadKey // of DropPayloads
}

// Doing is a hook that does something and does not fail.
func Doing(f func()) func(Call) error { return func(Call) error { f(); return nil } }

// failing is a hook that fails.
func failing(err error) func(Call) error { return func(Call) error { return err } }

// whole returns the shelf as a timeline.Whole if the shelf below is one.
func (h *Hooked) whole() timeline.Shelf {
	w, ok := h.Shelf.(timeline.Whole)
	if !ok {
		return h
	}
	return struct {
		*Hooked
		timeline.Whole
	}{h, w}
}

func (hooks Hooks) call(method string, c Call) error {
	if f := hooks[method]; f != nil {
		return f(c)
	}
	return nil
}

// around calls a method of the shelf between its hooks.
func around[T any](h *Hooked, method string, c Call, do func() (T, error)) (T, error) {
	var none T
	if err := h.Before.call(method, c); err != nil {
		return none, err
	}
	out, err := do()
	if err == nil {
		err = h.After.call(method, c)
	}
	return out, err
}

// act is around a method that only returns an error.
func (h *Hooked) act(method string, c Call, do func() error) error {
	_, err := around(h, method, c, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

func (h *Hooked) Put(ctx context.Context, entries []timeline.Placed) error {
	return h.act("Put", Call{Entries: entries}, func() error { return h.Shelf.Put(ctx, entries) })
}

func (h *Hooked) Slice(ctx context.Context, p timeline.Part, r timeline.Range, d timeline.Direction, l timeline.Limit) (timeline.Slice, error) {
	return around(h, "Slice", Call{Part: p}, func() (timeline.Slice, error) { return h.Shelf.Slice(ctx, p, r, d, l) })
}

func (h *Hooked) Mark(ctx context.Context, name string, starts []int64, now time.Time) error {
	return h.act("Mark", Call{}, func() error { return h.Shelf.Mark(ctx, name, starts, now) })
}

func (h *Hooked) Marks(ctx context.Context, name string, from, toExcl int64, d timeline.Direction, limit int) ([]int64, error) {
	return around(h, "Marks", Call{}, func() ([]int64, error) { return h.Shelf.Marks(ctx, name, from, toExcl, d, limit) })
}

func (h *Hooked) History(ctx context.Context, name string) (timeline.History, error) {
	return around(h, "History", Call{}, func() (timeline.History, error) { return h.Shelf.History(ctx, name) })
}

func (h *Hooked) SetHistory(ctx context.Context, name string, old uint64, next timeline.History) error {
	return h.act("SetHistory", Call{}, func() error { return h.Shelf.SetHistory(ctx, name, old, next) })
}

func (h *Hooked) Payload(ctx context.Context, key timeline.PayloadKey) ([]byte, error) {
	return around(h, "Payload", Call{}, func() ([]byte, error) { return h.Shelf.Payload(ctx, key) })
}

func (h *Hooked) DropPayloads(ctx context.Context, keys []timeline.PayloadKey, name string, before time.Time) error {
	return h.act("DropPayloads", Call{Keys: keys}, func() error { return h.Shelf.DropPayloads(ctx, keys, name, before) })
}
