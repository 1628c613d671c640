package auth

import (
	"context"
	"errors"
	"sync"
	"testing"
)

// A lazyContext behaves like one of context.WithCancelCause, whether or not Done was
// called before it ends.
func TestLazyContext(t *testing.T) {
	type key struct{}
	reason := errors.New("a reason")
	for _, asked := range []bool{false, true} {
		for end, want := range map[string]error{"cancel": reason, "parent": context.Canceled, "release": nil} {
			parent, stop := context.WithCancel(context.WithValue(t.Context(), key{}, 1))
			defer stop()
			c := &lazyContext{Context: parent}
			var children []context.Context
			if asked {
				var asking sync.WaitGroup
				for range 4 {
					asking.Go(func() { c.Done() })
				}
				asking.Wait()
				child, cancel := context.WithCancel(c)
				defer cancel()
				children = append(children, child)
			}
			if c.Err() != nil || c.Value(key{}) != 1 || c.cause() != nil {
				t.Errorf("asked %t: before the end: %v %v %v", asked, c.Err(), c.Value(key{}), c.cause())
			}
			switch end {
			case "cancel":
				c.cancel(reason)
				c.release()
			case "parent":
				stop()
			case "release":
				c.release()
				if !asked {
					if c.Err() != nil {
						t.Error("release ends what nobody has asked for")
					}
					continue
				}
				want = context.Canceled
			}
			for _, ended := range append(children, c) {
				<-ended.Done()
				if ended.Err() != context.Canceled || context.Cause(ended) != want || ended.Value(key{}) != 1 {
					t.Errorf("asked %t, %s: %v because of %v, want %v", asked, end, ended.Err(), context.Cause(ended), want)
				}
			}
		}
	}
}
