package remove

import (
	"context"
	"errors"
	"slices"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/work"
)

var findRows = &cql.Statement{Name: "find_rows", Level: cql.SeesAll, KeyArgs: 1,
	Text: "SELECT DISTINCT key FROM data_points WHERE key IN ?"}

// haveSamples reports which of some rows have samples, or so many tombstones that a node cannot
// tell. A row without a key has none. Up to most rows with the same replicas share a statement,
// since the statement costs a node, and this process, more than looking into an empty row; atOnce
// statements are executed concurrently. turn is called before each of them.
func (d *Deleter) haveSamples(ctx context.Context, atOnce, most int, keys [][]byte, turn func(context.Context)) ([]bool, error) {
	have := make([]bool, len(keys))
	byReplicas := map[string][]int{}
	for i, key := range keys {
		if key != nil {
			set := d.ks.Session.ReplicaSet(cql.Entry{Statement: findRows, Args: []any{keys[i : i+1]}})
			byReplicas[set] = append(byReplicas[set], i)
		}
	}
	var parts [][]int
	for _, places := range byReplicas {
		parts = slices.AppendSeq(parts, slices.Chunk(places, most))
	}
	err := work.Parallel(ctx, atOnce, len(parts), "look for samples", func(ctx context.Context, n int) error {
		turn(ctx)
		return d.lookForSamples(ctx, keys, parts[n], have)
	})
	return have, err
}

// lookForSamples sets have for the keys at some positions: with one statement, or with one for
// each key if a node refuses that.
func (d *Deleter) lookForSamples(ctx context.Context, keys [][]byte, places []int, have []bool) error {
	if len(places) > 1 {
		err := d.findRows(ctx, keys, places, have)
		if !tooMany(err) {
			return err
		}
	}
	for _, i := range places {
		var err error
		if have[i], err = rowkey.HasSamples(ctx, d.ks.Session, keys[i]); err != nil {
			return err
		}
	}
	return nil
}

func (d *Deleter) findRows(ctx context.Context, keys [][]byte, places []int, have []bool) error {
	some := make([][]byte, len(places))
	at := make(map[string]int, len(places))
	for n, i := range places {
		some[n], at[string(keys[i])] = keys[i], i
	}
	rows := d.ks.Session.Query(ctx, findRows, some)
	defer rows.Close()
	for key := (cql.Raw{}); rows.Scan(&key); {
		if i, ok := at[string(key)]; ok {
			have[i] = true
		}
	}
	return rows.Close()
}

// tooMany reports whether a node refused a statement for so many rows: it read too many
// tombstones, or a guardrail allows fewer values in a statement.
func tooMany(err error) bool {
	return errors.As(err, new(*cql.TombstoneError)) || cql.IsRefused(err, cql.GuardrailHit)
}
