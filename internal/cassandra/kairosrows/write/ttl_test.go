package write

import (
	"testing"
	"time"

	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/model"
)

// TestTTLOfIndexRows: index rows live until their expiry, but not longer than the server accepts.
func TestTTLOfIndexRows(t *testing.T) {
	const now = 1_900_000_000
	for _, tc := range []struct {
		expiry  int64
		limited bool
		want    int
	}{
		{rowkey.Forever, false, 0},
		{rowkey.Forever, true, 0},
		{now + 100, false, 100},
		{now + 100, true, 100},
		{now, false, 1},
		{now - 100, true, 1},
		{endOf2038 + 1000, false, endOf2038 + 1000 - now},
		{endOf2038 + 1000, true, endOf2038 - 60 - now},
		{now + model.MaxTTL + 1, false, model.MaxTTL},
	} {
		w := &indexWriter{now: func() time.Time { return time.Unix(now, 0) }}
		if tc.limited {
			w.cap2038.Store(now + 1)
		}
		if got := w.ttl(tc.expiry); got != tc.want {
			t.Errorf("%+v: %d", tc, got)
		}
	}
}
