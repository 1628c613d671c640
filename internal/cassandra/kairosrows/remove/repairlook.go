package remove

import (
	"context"
	"fmt"
	"slices"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/model"
	"varve/internal/work"
)

// A repair looks for many index rows with one statement, and then for each that was not found
// with a statement of its own. So the first statement may miss rows, for example because a
// server keeps tags in a different order, or because a limit truncates a partition.
const (
	// keysAtOnce is how many row keys of one partition a statement looks for.
	keysAtOnce = 100

	// partitionsAtOnce is how many partitions a statement reads. One node coordinates the reads
	// of all of them.
	partitionsAtOnce = 20

	// partitionRows is how many rows such a statement reads of each partition.
	partitionRows = 4
)

var (
	findRowKeys = &cql.Statement{Name: "find_row_keys", Level: cql.Everywhere,
		Text: "SELECT data_type, tags FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND data_type = ? AND tags IN ?"}
	findTagRows = &cql.Statement{Name: "find_tag_rows", Level: cql.Everywhere,
		Text: "SELECT data_type, tags FROM varve_row_index WHERE metric = ? AND row_time = ? AND tag = ? AND value = ? AND shard = ? AND data_type = ? AND tags IN ?"}
	findTagValues = &cql.Statement{Name: "find_tag_values", Level: cql.Everywhere,
		Text: fmt.Sprintf("SELECT data_type, tags FROM varve_row_index WHERE metric = ? AND row_time = ? AND tag = ? AND value IN ? AND shard = ? PER PARTITION LIMIT %d", partitionRows)}
)

// A partedKey is a row key with its partition.
type partedKey struct {
	part rowkey.Partition
	key  rowkey.Key
}

// A question is a statement that looks for elements of a list, which it names by their
// positions.
type question struct {
	statement *cql.Statement
	args      []any
	places    []int
}

// missing executes questions about keys, whose answers consist of data type and tags. It returns
// the positions that were neither in found before nor in an answer.
func (r *repair) missing(ctx context.Context, keys []partedKey, found []bool, questions []question) ([]int, error) {
	err := work.Parallel(ctx, r.d.cfg.Parallel, len(questions), "look for rows", func(ctx context.Context, i int) error {
		q := &questions[i]
		at := make(map[rowkey.Key]int, len(q.places))
		for _, i := range q.places {
			at[keys[i].key] = i
		}
		err := rowkey.Each(ctx, r.d.ks.Session, q.statement, q.args, func(k rowkey.Key) error {
			if i, ok := at[k]; ok {
				found[i] = true // each position is in one question only
			}
			return nil
		})
		if tooMany(err) {
			return nil // each row is looked for by itself
		}
		return err
	})
	return unfound(found), err
}

func unfound(found []bool) (places []int) {
	for i, there := range found {
		if !there {
			places = append(places, i)
		}
	}
	return places
}

// placesBy groups positions that have the same name.
func placesBy[K comparable](places []int, name func(i int) K) map[K][]int {
	groups := map[K][]int{}
	for _, i := range places {
		k := name(i)
		groups[k] = append(groups[k], i)
	}
	return groups
}

// unlisted returns the positions of the keys that row_keys lacks.
func (r *repair) unlisted(ctx context.Context, keys []partedKey) ([]int, error) {
	type group struct {
		rowkey.Partition
		typ model.Type
	}
	hash := func(i int) uint64 { return r.known.rowKey(keys[i]) }
	found := r.known.all(len(keys), hash)
	var questions []question
	for g, places := range placesBy(unfound(found), func(i int) group { return group{keys[i].part, keys[i].key.Type} }) {
		for some := range slices.Chunk(places, keysAtOnce) {
			args := append(g.Args(), string(g.typ), tagMaps(keys, some))
			questions = append(questions, question{findRowKeys, args, some})
		}
	}
	places, err := r.missing(ctx, keys, found, questions)
	if err != nil {
		return nil, err
	}
	for i, there := range found {
		if there {
			r.known.note(hash(i))
		}
	}
	return r.reallyMissing(ctx, places, r.hasRowKey(keys))
}

// hasRowKey returns a function that looks for one of the keys.
func (r *repair) hasRowKey(keys []partedKey) func(ctx context.Context, i int) (bool, error) {
	return func(ctx context.Context, i int) (bool, error) {
		k := keys[i]
		return r.d.ks.Session.One(ctx, findRowKey, slices.Concat(k.part.Args(), k.key.Args()), nil)
	}
}

func tagMaps(keys []partedKey, places []int) []cql.TagMap {
	tags := make([]cql.TagMap, len(places))
	for i, at := range places {
		tags[i] = cql.TagMap{Tags: keys[at].key.Tags}
	}
	return tags
}

// reallyMissing returns the positions of those that are not found by themselves either.
func (r *repair) reallyMissing(ctx context.Context, places []int, find func(ctx context.Context, i int) (bool, error)) ([]int, error) {
	there := make([]bool, len(places))
	err := work.Parallel(ctx, r.d.cfg.Parallel, len(places), "look for rows", func(ctx context.Context, i int) (err error) {
		there[i], err = find(ctx, places[i])
		return err
	})
	var gone []int
	for i, at := range places {
		if !there[i] {
			gone = append(gone, at)
		}
	}
	return gone, err
}

// withoutTagRows returns the positions of the keys for which varve_row_index lacks a row.
func (r *repair) withoutTagRows(ctx context.Context, keys []partedKey) ([]int, error) {
	var rows []partedKey // one for each tag
	var tags []rowkey.TagPlace
	var of []int // the key to which the row belongs
	for i, k := range keys {
		for at := range rowkey.TagPlaces(k.key.Tags, r.d.ks.IndexShards) {
			rows, tags, of = append(rows, k), append(tags, at), append(of, i)
		}
	}
	found := r.known.all(len(rows), func(i int) uint64 { return r.known.tagRow(rows[i], tags[i]) })
	places, err := r.missing(ctx, rows, found, r.tagQuestions(rows, tags, unfound(found)))
	if err != nil {
		return nil, err
	}
	places, err = r.reallyMissing(ctx, places, func(ctx context.Context, i int) (bool, error) {
		args := slices.Concat(tags[i].Args(rows[i].part), rows[i].key.Args())
		return r.d.ks.Session.One(ctx, findTagRow, args, nil)
	})
	var lacking []int
	for _, at := range places {
		lacking = append(lacking, of[at])
	}
	slices.Sort(lacking)
	return slices.Compact(lacking), err
}

// tagQuestions returns questions for rows of varve_row_index: rows of the same partition share
// a question, and rows that are alone in their partition share one for several partitions.
func (r *repair) tagQuestions(rows []partedKey, tags []rowkey.TagPlace, asked []int) []question {
	type partition struct {
		rowkey.Partition
		rowkey.TagPlace
		typ model.Type
	}
	type values struct {
		rowkey.Partition
		tag   string
		shard int
	}
	var questions []question
	alone := map[values][]int{}
	for p, places := range placesBy(asked, func(i int) partition { return partition{rows[i].part, tags[i], rows[i].key.Type} }) {
		if len(places) == 1 && hasPartitionLimit(r.d.ks.Session.State().Version) {
			v := values{p.Partition, p.Tag, p.Shard}
			alone[v] = append(alone[v], places[0])
			continue
		}
		for some := range slices.Chunk(places, keysAtOnce) {
			questions = append(questions, question{findTagRows, append(p.TagPlace.Args(p.Partition), string(p.typ), tagMaps(rows, some)), some})
		}
	}
	for v, places := range alone {
		for some := range slices.Chunk(places, partitionsAtOnce) {
			names := make([]string, len(some))
			for i, at := range some {
				names[i] = tags[at].Value
			}
			questions = append(questions, question{findTagValues, []any{v.Metric, v.TimeMS, v.tag, names, v.shard}, some})
		}
	}
	return questions
}

// hasPartitionLimit reports whether a release of Cassandra supports PER PARTITION LIMIT.
func hasPartitionLimit(version string) bool {
	var major, minor int
	n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor)
	return n == 2 && (major > 3 || major == 3 && minor >= 6)
}

// withoutSamples returns the positions of the keys whose rows have no samples.
func (r *repair) withoutSamples(ctx context.Context, keys []partedKey) ([]int, error) {
	rows := make([][]byte, len(keys))
	for i, k := range keys {
		key, err := k.part.DataKey(k.key)
		if err == nil { // otherwise data_points cannot contain such a row
			rows[i] = key
		}
	}
	found := r.known.all(len(keys), func(i int) uint64 { return r.known.row(rows[i]) })
	asked := unfound(found)
	some := make([][]byte, len(asked))
	for n, i := range asked {
		some[n] = rows[i]
	}
	there, err := r.d.haveSamples(ctx, r.d.cfg.Parallel, partitionsAtOnce, some, func(context.Context) {})
	if err != nil {
		return nil, err
	}
	for n, i := range asked {
		found[i] = there[n]
	}
	return unfound(found), nil
}
