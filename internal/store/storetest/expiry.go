package storetest

import (
	"fmt"
	"time"

	"varve/internal/model"
)

// expiryTests run on any clock, also a real one; scripts/ttl.txt has what
// needs an exact one.
var expiryTests = []test{
	{"expires", expires},
	{"survives-reopening", expiresReopened},
	{"names-vanish-after-maintenance", expiredNames},
	{"whole-block-beside-lasting-ones", expiredBlock},
}

func (e *env) putTTL(s model.Series, atMS int64, n int64, ttl uint32) {
	e.Helper()
	e.putAll([]scriptSample{{series: s, timeMS: atMS, value: value{bits: uint64(n)}, ttl: ttl}})
}

func expires(e *env) {
	s := seriesA(model.TypeLong)
	now := e.h.now().UnixMilli()
	e.putTTL(s, now, 1, 5)
	e.putTTL(s, now+1, 2, 600)
	e.putTTL(s, now+2, 3, 0)
	e.putTTL(s, now+3, 4, model.MaxTTL/2)
	e.expect("read load{host=a}:long", fmt.Sprintf("%d=1 %d=2 %d=3 %d=4", now, now+1, now+2, now+3))
	e.h.advance(6 * time.Second)
	e.expect("read load{host=a}:long", fmt.Sprintf("%d=2 %d=3 %d=4", now+1, now+2, now+3))
	e.merge()
	e.expect("read load{host=a}:long", fmt.Sprintf("%d=2 %d=3 %d=4", now+1, now+2, now+3))
}

func expiresReopened(e *env) {
	s := seriesA(model.TypeLong)
	now := e.h.now().UnixMilli()
	e.putTTL(s, now, 1, 5)
	e.putTTL(s, now+1, 2, 600)
	e.reopen()
	e.flush()
	e.reopen()
	e.h.advance(6 * time.Second)
	e.expect("read load{host=a}:long", fmt.Sprintf("%d=2", now+1))
	e.reopen()
	e.expect("read load{host=a}:long", fmt.Sprintf("%d=2", now+1))
}

func expiredNames(e *env) {
	if e.h.LazyNames || e.h.Merge == nil {
		e.Skip("names may outlive expired samples in this store")
	}
	now := e.h.now().UnixMilli()
	e.putTTL(seriesA(model.TypeLong), now, 1, 5)
	e.putTTL(hostSeries("mem", 1), now, 1, 600)
	e.expect("names metrics", "load mem")
	e.h.advance(6 * time.Second)
	e.merge()
	e.expect("names metrics", "mem")
	e.expect("names tagvalues", "h000001")
	e.expect("select load -raw", "(none)")
	e.reopen()
	e.expect("names metrics", "mem")
	e.putTTL(seriesA(model.TypeLong), now+1, 2, 600)
	e.expect("names metrics", "load mem")
}

// expiredBlock: hundreds of samples with one life, then others without.
func expiredBlock(e *env) {
	s := seriesA(model.TypeDouble)
	now := e.h.now().UnixMilli()
	lasting := steps(s.Type, now-10_000_000, 500)
	e.put(s, lasting, 500)
	short := make([]scriptSample, 500)
	for i := range short {
		short[i] = scriptSample{series: s, timeMS: now - 5_000 + int64(i), value: value{bits: uint64(i)}, ttl: 10}
	}
	e.putAll(short)
	e.flush()
	e.h.advance(6 * time.Second)
	e.everyway("after the short lives have ended", s, lasting)
	e.merge()
	e.everyway("after a merge", s, lasting)
	e.reopen()
	e.everyway("opened again", s, lasting)
}
