package remove

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/write"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/work"
)

var (
	scanRows = &cql.Statement{Name: "scan_rows", Scan: true,
		Text: "SELECT DISTINCT key, token(key) FROM data_points WHERE token(key) > ? AND token(key) <= ?"}
	findTagRow = &cql.Statement{Name: "find_tag_row", Level: cql.Everywhere, PageSize: 2,
		Text: "SELECT data_type FROM varve_row_index WHERE metric = ? AND row_time = ? AND tag = ? AND value = ? AND shard = ? AND data_type = ? AND tags = ?"}
	findLegacyKey = &cql.Statement{Name: "find_legacy_key", Level: cql.Everywhere, PageSize: 2,
		Text: "SELECT column1 FROM row_key_index WHERE key = ? AND column1 = ?"}
	readTTLs = &cql.Statement{Name: "read_ttls", Level: cql.Everywhere,
		Text: "SELECT TTL(value) FROM data_points WHERE key = ?"}
	insertLegacyKey = &cql.Statement{Name: "insert_legacy_key", Level: cql.Quorum,
		Text: "INSERT INTO row_key_index (key, column1, value) VALUES (?, ?, ?) USING TTL 0"}
)

// rows scans data_points.
func (r *repair) rows(ctx context.Context, from, to int64) error {
	rows := r.d.ks.Session.Query(ctx, scanRows, from, to)
	defer rows.Close()
	var keys []rowtime.Key
	flush := func() error {
		err := r.indexRows(ctx, keys)
		keys = keys[:0]
		return err
	}
	var raw cql.Raw
	var token int64
	for rows.Scan(&raw, &token) {
		r.report.Rows++
		key, err := rowtime.ParseKey(string(raw))
		if err != nil || !indexable(key) || rowtime.Ambiguous(string(raw)) {
			r.report.Unreadable++
			continue
		}
		r.known.note(r.known.row(raw))
		if keys = append(keys, key); len(keys) == repairChunk {
			if err := flush(); err != nil {
				return err
			}
			r.reached(token)
		}
	}
	return errors.Join(rows.Close(), flush())
}

// indexable reports whether the index tables take a key: names in it are UTF-8, and that of the metric
// is not empty.
func indexable(k rowtime.Key) bool {
	for name, value := range k.Tags.All() {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return false
		}
	}
	return k.Metric != "" && utf8.ValidString(k.Metric) && utf8.ValidString(string(k.Type))
}

// indexRows adds missing index rows.
func (r *repair) indexRows(ctx context.Context, keys []rowtime.Key) error {
	if len(keys) == 0 {
		return nil
	}
	if err := r.pace(ctx, len(keys)); err != nil {
		return err
	}
	lacking, err := r.lackIndex(ctx, keys)
	if err != nil {
		return err
	}
	missing := make([]bool, len(keys))
	needs := make([]int64, len(keys))
	err = work.Parallel(ctx, r.d.cfg.Parallel, len(lacking), "look for rows", func(ctx context.Context, n int) (err error) {
		i := lacking[n]
		needs[i], missing[i], err = r.expiry(ctx, keys[i])
		return err
	})
	if err != nil {
		return err
	}
	var add []write.Row
	for i, k := range keys {
		if !missing[i] {
			continue
		}
		r.report.Unindexed++
		switch {
		case r.o.DryRun:
		case k.Type == rowtime.TypeLegacy:
			if err := r.addLegacy(ctx, k); err != nil {
				return err
			}
		default:
			s := model.Series{Metric: k.Metric, Tags: k.Tags, Type: k.Type}
			add = append(add, write.Row{Series: s, RowTimeMS: k.RowTimeMS, NeedSec: needs[i]})
		}
	}
	if len(add) == 0 {
		return nil
	}
	return r.d.writer.AddIndexRows(ctx, r.addMS, add)
}

// addLegacy adds the key of an old row to row_key_index, where KairosDB looks for it.
func (r *repair) addLegacy(ctx context.Context, k rowtime.Key) error {
	key, err := k.Append(nil)
	if err != nil || !r.d.ks.Tables.RowKeyIndex {
		return err
	}
	if err := r.d.ks.Session.Exec(ctx, insertLegacyKey, r.addMS, []byte(k.Metric), key, []byte{0}); err != nil {
		return err
	}
	return rowkey.AddName(ctx, r.d.ks, r.addMS, k.Metric)
}

// lackIndex returns the positions of rows that cannot be found through the index.
func (r *repair) lackIndex(ctx context.Context, keys []rowtime.Key) ([]int, error) {
	parts, err := r.partFacts(ctx, keys)
	if err != nil {
		return nil, err
	}
	left, err := r.unknownToLegacy(ctx, keys)
	if err != nil {
		return nil, err
	}
	var lacking, rest []int
	var some []partedKey
	for _, i := range left {
		if k := partedOf(keys[i]); keys[i].Type == rowtime.TypeLegacy || !parts[k.part].listed {
			lacking = append(lacking, i)
		} else {
			some, rest = append(some, k), append(rest, i)
		}
	}
	unlisted, err := r.unlisted(ctx, some)
	if err != nil {
		return nil, err
	}
	lost := map[int]bool{}
	for _, at := range unlisted {
		lost[at], lacking = true, append(lacking, rest[at])
	}
	var tagged []partedKey
	var of []int
	for at, k := range some {
		if !lost[at] && parts[k.part].covered { // otherwise no query relies on varve_row_index
			tagged, of = append(tagged, k), append(of, rest[at])
		}
	}
	untagged, err := r.withoutTagRows(ctx, tagged)
	for _, at := range untagged {
		lacking = append(lacking, of[at])
	}
	return lacking, err
}

func partedOf(k rowtime.Key) partedKey {
	return partedKey{rowkey.Partition{Metric: k.Metric, TimeMS: k.RowTimeMS}, rowkey.Key{Type: k.Type, Tags: k.Tags}}
}

// unknownToLegacy returns the positions of the rows that are not found by row_key_index.
func (r *repair) unknownToLegacy(ctx context.Context, keys []rowtime.Key) ([]int, error) {
	all := make([]int, len(keys))
	for i := range all {
		all[i] = i
	}
	if !r.legacy {
		return all, nil
	}
	return r.reallyMissing(ctx, all, func(ctx context.Context, i int) (bool, error) {
		key, err := keys[i].Append(nil)
		if err != nil {
			return false, err
		}
		there, err := r.d.ks.Session.One(ctx, findLegacyKey, []any{[]byte(keys[i].Metric), key}, nil)
		if err != nil || !there {
			return false, err
		}
		return r.isNamed(ctx, keys[i].Metric)
	})
}

// isNamed reports whether string_index has the name of a metric.
func (r *repair) isNamed(ctx context.Context, metric string) (bool, error) {
	return r.d.ks.Session.One(ctx, probeName, []any{[]byte(schema.MetricNames), r.d.ks.Tables.NameColumn(metric)}, nil)
}

// partFacts are facts that all row keys of a partition share.
type partFacts struct {
	listed  bool // row_key_time_index has the row time, and string_index the metric's name
	covered bool // varve_row_index counts as complete
}

const (
	// maxFacts bounds the number of partitions whose facts are cached, and factsLife for how
	// long.
	maxFacts  = 100_000
	factsLife = time.Minute
)

// partFacts returns the facts about the partitions of keys.
func (r *repair) partFacts(ctx context.Context, keys []rowtime.Key) (map[rowkey.Partition]partFacts, error) {
	facts := map[rowkey.Partition]partFacts{}
	asked := map[rowkey.Partition]bool{}
	for _, k := range keys {
		p := partedOf(k).part
		if known, ok := r.facts[p]; ok {
			facts[p] = known
		} else if k.Type != rowtime.TypeLegacy {
			asked[p] = true
		}
	}
	parts := slices.Collect(maps.Keys(asked))
	found := make([]partFacts, len(parts))
	err := work.Parallel(ctx, r.d.cfg.Parallel, len(parts), "look for rows", func(ctx context.Context, i int) (err error) {
		found[i], err = r.factsOf(ctx, parts[i])
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(r.facts) > maxFacts || r.d.now().Sub(r.factsFrom) > factsLife {
		r.facts, r.factsFrom = map[rowkey.Partition]partFacts{}, r.d.now()
	}
	for i, p := range parts {
		facts[p], r.facts[p] = found[i], found[i]
	}
	return facts, nil
}

func (r *repair) factsOf(ctx context.Context, p rowkey.Partition) (f partFacts, err error) {
	session := r.d.ks.Session
	if f.listed, err = session.One(ctx, rowkey.FindRowTime, p.Args(), nil); err != nil || !f.listed {
		return f, err
	}
	if f.listed, err = r.isNamed(ctx, p.Metric); err != nil || !f.listed || !r.d.ks.Tables.Own {
		return f, err
	}
	seen, err := rowkey.ReadFirst(ctx, session, p)
	if err != nil {
		return f, err
	}
	state, err := rowkey.ReadState(ctx, r.d.ks, p)
	// Without mtime, queries may rely on the index.
	f.covered = seen.Mtime == nil && state.KairosMtime != cql.UUID{} || seen.Mtime != nil && *seen.Mtime == state.KairosMtime
	return f, err
}

// expiry returns the latest expiry of a row's samples, which need not be that of the last
// sample, and false if the row has no samples left.
func (r *repair) expiry(ctx context.Context, k rowtime.Key) (sec int64, there bool, err error) {
	key, err := k.Append(nil)
	if err != nil {
		return 0, false, err
	}
	rows := r.d.ks.Session.Query(ctx, readTTLs, key)
	defer rows.Close()
	var ttl *int
	longest := 0
	for rows.Scan(&ttl) {
		if ttl == nil {
			return rowkey.Forever, true, nil
		}
		longest, there = max(longest, *ttl), true
	}
	return r.d.now().Unix() + int64(longest), there, rows.Close()
}
