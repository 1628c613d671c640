package storetest

import (
	"context"
	"slices"
	"time"
)

// serviceKeyTests are the parts of the key-value store that the script language
// does not reach.
var serviceKeyTests = []test{
	{"distinct", serviceKeys},
	{"stop-early", serviceKeysStop},
	{"modified", modified},
}

func (e *env) serviceKeys(service string) []string {
	e.Helper()
	var out []string
	for k, err := range e.s.ServiceKeys(context.Background(), service) {
		if err != nil {
			e.Fatalf("ServiceKeys %s: %v", service, err)
		}
		out = append(out, k)
	}
	slices.Sort(out) // any order is right
	return out
}

func serviceKeys(e *env) {
	e.must("set svc b k1 v", "set svc a k1 v", "set svc a k2 v", "set svc ab k1 v", "set svc2 c k v", "unset svc a k1")
	want := []string{"a", "ab", "b"}
	if got := e.serviceKeys("svc"); !slices.Equal(got, want) {
		e.Fatalf("service keys of svc: %q, want %q", got, want)
	}
	e.reopen()
	if got := e.serviceKeys("svc"); !slices.Equal(got, want) {
		e.Fatalf("service keys of svc after reopening: %q, want %q", got, want)
	}
	if got := e.serviceKeys("none"); len(got) > 0 {
		e.Fatalf("service keys of an unknown service: %q, want none", got)
	}
}

// serviceKeysStop: a caller may leave a list before its end.
func serviceKeysStop(e *env) {
	e.must("set svc a k1 v", "set svc b k1 v", "set svc a k2 v")
	for k, err := range e.s.ServiceKeys(context.Background(), "svc") {
		if k != "a" && k != "b" || err != nil {
			e.Fatalf("first service key is %q, error %v; want a or b", k, err)
		}
		break
	}
	for k, err := range e.s.Keys(context.Background(), "svc", "a", "") {
		if k != "k1" || err != nil {
			e.Fatalf("first key is %q, error %v; want k1", k, err)
		}
		break
	}
	e.must("set svc c k1 v")
}

func modified(e *env) {
	at := func() time.Time {
		e.Helper()
		t, err := e.s.Modified(context.Background(), "svc", "sk")
		if err != nil {
			e.Fatalf("Modified: %v", err)
		}
		return t
	}
	if t := at(); !t.IsZero() {
		e.Fatalf("Modified of a service key that was never set is %v, want the zero time", t)
	}
	last := time.Time{}
	for _, line := range []string{"set svc sk k v", "set svc sk k v", "set svc sk other v", "unset svc sk k"} {
		e.h.advance(20 * time.Millisecond)
		e.must(line)
		now := at()
		if !now.After(last) {
			e.Fatalf("after %q Modified is %v, not later than %v before it", line, now, last)
		}
		last = now
	}
	e.must("set svc another k v", "set svc2 sk k v")
	if t := at(); !t.Equal(last) {
		e.Fatalf("Modified moved from %v to %v by a set of another service key", last, t)
	}
	v, err := e.s.Get(context.Background(), "svc", "sk", "other")
	if err != nil || v.Modified.IsZero() || v.Modified.After(last) {
		e.Fatalf("the value set before the unset at %v is modified at %v, error %v", last, v.Modified, err)
	}
	e.reopen()
	if t := at(); !t.Equal(last) {
		e.Fatalf("Modified is %v after reopening, was %v", t, last)
	}
}
