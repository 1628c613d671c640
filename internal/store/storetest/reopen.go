package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"varve/internal/model"
	"varve/internal/store"
)

// reopenTests close the store, or crash it, and open it again.
var reopenTests = []test{
	{"many-times", func(e *env) { reopenOften(e, (*runner).reopen) }},
	{"many-crashes", func(e *env) { reopenOften(e, (*runner).crash) }},
	{"empty", func(e *env) {
		e.reopen()
		e.expect("names metrics", "(none)")
		e.reopen()
		e.must("append load{host=a}:long 1000=1")
		e.expect("read load{host=a}:long", "1000=1")
	}},
	{"closed-store", closedStore},
	{"close-with-much-in-memory", closeFull},
}

// reopenOften writes, overwrites and deletes a little, and opens the store
// again, 12 times. Every third time something is flushed or merged before.
func reopenOften(e *env, again func(*runner)) {
	var want []string
	for i := range 12 {
		e.must(fmt.Sprintf("append load{host=a}:long %d=%d 500000=%d", i*1000, i, i),
			fmt.Sprintf("append gone{host=a}:long %d=1", i), "delete gone",
			fmt.Sprintf("append m%02d{host=a}:string 1=%q", i, strings.Repeat("x", i)),
			fmt.Sprintf("set svc sk k%02d v%d", i, i))
		switch i % 3 {
		case 1:
			e.flush()
		case 2:
			e.merge()
		}
		again(e.runner)
		want = append(want, fmt.Sprintf("%d=%d", i*1000, i))
		e.expect("read load{host=a}:long", strings.Join(want, " ")+fmt.Sprintf(" 500000=%d", i))
		e.expect("select gone -raw", "(none)")
		e.expect("names metrics -after=load -limit=1", map[bool]string{true: "m00", false: "m00 and more"}[i == 0])
		e.expect(fmt.Sprintf("read m%02d{host=a}:string", i), fmt.Sprintf("1=%q", strings.Repeat("x", i)))
		e.expect(fmt.Sprintf("get svc sk k%02d", i), fmt.Sprintf(`"v%d"`, i))
	}
}

func closedStore(e *env) {
	ctx := context.Background()
	e.must("append load{host=a}:long 1000=1")
	s := e.s
	ref, epoch := e.create(seriesA(model.TypeLong)), s.Epoch()
	e.close()
	closed := func(what string, err error) {
		e.Helper()
		if !errors.Is(err, store.ErrClosed) {
			e.Errorf("%s on a closed store: %v, want ErrClosed", what, err)
		}
	}
	_, err := s.View(ctx)
	closed("View", err)
	_, err = s.Create(ctx, hostSeries("new", 1))
	closed("Create", err)
	var b store.Batch
	b.Reset(epoch)
	b.AddLong(ref, 2000, 2, 0)
	closed("Append", s.Append(ctx, &b))
	closed("Delete", s.Delete(ctx, store.Deletion{Metric: "load", Range: model.AllTime}))
	closed("Set", s.Set(ctx, "a", "b", "c", "d"))
	closed("Unset", s.Unset(ctx, "a", "b", "c"))
	_, err = s.Get(ctx, "a", "b", "c")
	closed("Get", err)
	_, err = s.Modified(ctx, "a", "b")
	closed("Modified", err)
	for _, err = range s.Keys(ctx, "a", "b", "") {
	}
	closed("Keys", err)
	for _, err = range s.ServiceKeys(ctx, "a") {
	}
	closed("ServiceKeys", err)
	e.s = e.h.Open(e.TB)
	e.expect("read load{host=a}:long", "1000=1")
}

func closeFull(e *env) {
	s := seriesA(model.TypeDouble)
	samples := steps(s.Type, someTimeMS, 20_000)
	e.put(s, samples, 5000)
	e.reopen()
	v := e.view()
	defer v.Close()
	e.oneway("opened again", v, s, samples, store.ReadOptions{Range: model.AllTime})
}
