package rowkey

import (
	"context"
	"errors"
	"slices"
	"testing"

	"varve/internal/cassandra/cql"
)

// TestJoinBatches: small batches of one replica set go together, ten at most, in their order;
// large ones stay alone. All are sent once, also where a node takes less.
func TestJoinBatches(t *testing.T) {
	replicaSet := func(e cql.Entry) string { return e.Args[2].(string) }
	row := func(i int, tag string) cql.Entry {
		return cql.Entry{Statement: InsertTagRow, Args: []any{"m", int64(i), tag, "v", 0, "kairos_long", "", 0}}
	}
	var batches [][]cql.Entry
	for i := range 45 {
		batches = append(batches, []cql.Entry{row(i, []string{"a", "b"}[i%2])})
	}
	var large []cql.Entry
	for range 200 {
		large = append(large, row(100, "a"))
	}
	batches = append(batches, large)
	joined := JoinBatches(BatchPartitions, batches, replicaSet)
	if len(joined) != 3+3+1 { // 23 of a, 22 of b, the large one
		t.Errorf("%d batches", len(joined))
	}
	var sent []int64
	calls := 0
	batch := func(_ context.Context, _ int64, entries []cql.Entry) error {
		calls++
		times := map[int64]bool{}
		for _, e := range entries {
			if replicaSet(e) != replicaSet(entries[0]) {
				t.Error("a batch of two replica sets")
			}
			times[e.Args[1].(int64)] = true
		}
		if len(times) > 10 {
			t.Errorf("a batch of %d partitions", len(times))
		}
		if len(times) > 3 {
			return &cql.RefusedError{Reason: cql.BatchTooLarge, Err: errors.New("no")}
		}
		for _, e := range entries {
			sent = append(sent, e.Args[1].(int64))
		}
		return nil
	}
	rows := 0
	for _, j := range joined {
		n, err := SendJoined(t.Context(), batch, 1, j)
		if err != nil {
			t.Fatal(err)
		}
		rows += n
	}
	slices.Sort(sent)
	if distinct := slices.Compact(slices.Clone(sent)); rows != 245 || len(sent) != 245 || len(distinct) != 46 {
		t.Errorf("%d rows told, %d sent of %d partitions", rows, len(sent), len(distinct))
	}
	if calls > 40 {
		t.Errorf("%d statements", calls)
	}
	broken := errors.New("broken")
	if n, err := SendJoined(t.Context(), func(context.Context, int64, []cql.Entry) error { return broken }, 1, joined[0]); n != 0 || err != broken {
		t.Errorf("%d rows, %v", n, err)
	}
}
