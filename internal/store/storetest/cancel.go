package storetest

import (
	"context"
	"errors"
	"time"

	"varve/internal/model"
	"varve/internal/store"
)

// cancelTests are about contexts that end.
var cancelTests = []test{
	{"before-the-call", cancelledBefore},
	{"while-reading", cancelledWhileReading},
	{"deadline", deadlinePassed},
}

func cancelledBefore(e *env) {
	e.must("append load{host=a}:long 1000=1", "set a b c d")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	cancelled := func(what string, err error) {
		e.Helper()
		if !errors.Is(err, context.Canceled) {
			e.Errorf("%s with a cancelled context: %v, want context.Canceled", what, err)
		}
	}
	v := e.view()
	defer v.Close()
	s := e.selectOne(v, "load")
	_, err := Select(ctx, v, store.Selection{Metric: "load", Range: model.AllTime})
	cancelled("Select", err)
	_, _, err = v.Names(ctx, store.NamesQuery{})
	cancelled("Names", err)
	c := v.Read(ctx, s, store.ReadOptions{Range: model.AllTime})
	defer c.Close()
	_, err = c.Next()
	cancelled("Next", err)
	_, err = c.Next()
	cancelled("Next once more", err)
	var b store.Batch
	b.Reset(e.s.Epoch())
	b.AddLong(e.create(s.Series), 2000, 2, 0)
	cancelled("Append", e.s.Append(ctx, &b))
	cancelled("Delete", e.s.Delete(ctx, store.Deletion{Metric: "load", Range: model.AllTime}))
	e.expect("read load{host=a}:long -to=1000", "1000=1")
}

// cancelledWhileReading: after the first block of a long series the context
// ends; the cursor must follow within 100 ms.
func cancelledWhileReading(e *env) {
	s := seriesA(model.TypeDouble)
	e.put(s, steps(s.Type, someTimeMS, 200_000), 50_000)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	v := e.view()
	defer v.Close()
	c := v.Read(ctx, e.selectOne(v, "load"), store.ReadOptions{Range: model.AllTime})
	defer c.Close()
	if b, err := c.Next(); b == nil || err != nil {
		e.Fatalf("first block: %v, error %v", b, err)
	}
	cancel()
	started := time.Now()
	for {
		b, err := c.Next()
		if errors.Is(err, context.Canceled) {
			break
		}
		if err != nil || b == nil {
			e.Fatalf("after cancelling, the cursor ended with %v, want context.Canceled", err)
		}
	}
	if took := time.Since(started); took > 100*time.Millisecond {
		e.Errorf("the cursor took %v to notice that its context had ended, want at most 100ms", took)
	}
}

func deadlinePassed(e *env) {
	e.must("append load{host=a}:long 1000=1")
	ctx, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer cancel()
	v := e.view()
	defer v.Close()
	if _, err := Select(ctx, v, store.Selection{Metric: "load", Range: model.AllTime}); !errors.Is(err, context.DeadlineExceeded) {
		e.Errorf("Select after the deadline: %v, want context.DeadlineExceeded", err)
	}
}
