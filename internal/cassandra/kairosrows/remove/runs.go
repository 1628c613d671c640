package remove

import (
	"context"
	"slices"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
)

// runsFrom is up to how many row keys of a partition are deleted one by one.
const runsFrom = 1000

// A runDeleter deletes many row keys of one partition by ranges: one range tombstone for each
// run of deleted keys without a remaining key in between. Cassandra refuses to read a partition
// with too many tombstones (100,000 by default), which a large delete could exceed with a
// tombstone for each key. There is at most one more range than there are remaining keys.
type runDeleter struct {
	list *cql.Statement // lists type and tags of all keys of the partition, in order
	some *cql.Statement // lists those from one key to another
	one  *cql.Statement // deletes one key; arguments: partition, type, tags
	run  *cql.Statement // deletes a run; arguments: partition, type and tags of the first key, of the last key
	all  *cql.Statement // partition
}

const betweenKeys = " AND (data_type, tags) >= (?, ?) AND (data_type, tags) <= (?, ?)"

var (
	rowKeyRuns = runDeleter{
		list: rowkey.ListRowKeys,
		some: &cql.Statement{Name: "list_row_keys", Level: cql.Everywhere, Prefetch: true, Text: rowkey.ListRowKeys.Text + betweenKeys},
		one:  deleteRowKey,
		all:  deleteRowKeys,
		run: &cql.Statement{Name: "delete_row_key_run", Level: cql.Quorum, KeyArgs: 3,
			Text: "DELETE FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ?" + betweenKeys},
	}
	tagRowRuns = runDeleter{
		list: &cql.Statement{Name: "list_tag_rows", Level: cql.Everywhere, Prefetch: true, Text: rowkey.SelectTagRows},
		some: &cql.Statement{Name: "list_tag_rows", Level: cql.Everywhere, Prefetch: true, Text: rowkey.SelectTagRows + betweenKeys},
		one:  deleteTagRow,
		all:  deleteTagRows,
		run: &cql.Statement{Name: "delete_tag_row_run", Level: cql.Quorum, KeyArgs: 5,
			Text: deleteTagRows.Text + betweenKeys},
	}
)

// batches returns the deletes of keys of a partition: of all, one by one, or by runs.
func (r *runDeleter) batches(ctx context.Context, session *cql.Session, partition []any, gone []rowDelete, all bool) ([][]cql.Entry, error) {
	var entries []cql.Entry
	switch {
	case all:
		entries = []cql.Entry{{Statement: r.all, Args: partition}}
	case len(gone) == 0:
		return nil, nil
	case len(gone) > runsFrom:
		var err error
		if entries, err = r.entries(ctx, session, partition, gone); err != nil {
			return nil, err
		}
	default:
		for i := range gone {
			entries = append(entries, cql.Entry{Statement: r.one, Args: slices.Concat(partition, gone[i].key.Args())})
		}
	}
	return rowkey.CutBatches(entries), nil
}

// entries returns statements that delete the keys by runs. It reads the partition, only from
// the first to the last of the keys if their order is known. If a key is added between two
// deleted ones during that read, the range hides it; its writer writes it again, since the
// removal was announced: see write.Writer.
func (r *runDeleter) entries(ctx context.Context, session *cql.Session, partition []any, gone []rowDelete) ([]cql.Entry, error) {
	goes := make(map[rowkey.Key]bool, len(gone))
	for i := range gone {
		goes[gone[i].key] = true
	}
	list, args := r.list, partition
	if rowkey.KeepsMapsInOrder(session.State().Version) {
		low, high := bounds(gone)
		list, args = r.some, slices.Concat(partition, low.Args(), high.Args())
	}
	var entries []cql.Entry
	var first, last *rowkey.Key // of the run
	end := func() {
		if first != nil {
			entries = append(entries, cql.Entry{Statement: r.run, Args: slices.Concat(partition, first.Args(), last.Args())})
		}
		first, last = nil, nil
	}
	err := rowkey.Each(ctx, session, list, args, func(k rowkey.Key) error {
		if !goes[k] {
			end()
			return nil
		}
		if last = &k; first == nil {
			first = &k
		}
		return nil
	})
	end()
	return entries, err
}
