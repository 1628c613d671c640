package query

import (
	"testing"

	"varve/internal/model"
	"varve/internal/store"
)

// A store that thins out nothing shows samples where buckets alone are asked for: there are
// no buckets then.
func TestBucketsOfPlainStore(t *testing.T) {
	f := newFixture(t, DefaultConfig())
	f.put("m", model.MustTags("h", "a"), sample{1, 1}, sample{2, 2})
	f.put("m", model.MustTags("h", "a"), sample{1, 0.5}, sample{3, 2.5}) // of the other type
	f.put("m", model.MustTags("h", "b"), sample{1, 1}, sample{2, 2})
	s := f.session(t, t.Context())
	defer s.Close(nil)
	l := s.Lease()
	defer l.Release()
	for host, n := range f.numbers(t, s, "m") {
		var got store.Buckets
		if err := s.AppendBuckets(&got, n, model.AllTime, model.AllStats, &l); err != nil || got.Len() != 0 {
			t.Errorf("%s: %d buckets, %v", host, got.Len(), err)
		}
	}
}
