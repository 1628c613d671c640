package write

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
)

var findRowKey = &cql.Statement{Name: "find_known_row_key", Level: cql.Quorum, PageSize: 2,
	Text: "SELECT data_type FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND data_type = ? AND tags = ?"}

var findTagRow = &cql.Statement{Name: "find_known_tag_row", Level: cql.Quorum, PageSize: 2,
	Text: "SELECT data_type FROM varve_row_index WHERE metric = ? AND row_time = ? AND tag = ? AND value = ? AND shard = ? AND data_type = ? AND tags = ?"}

// Someone may empty or drop the index tables while the process runs, by TRUNCATE or DROP in a CQL
// shell. Nothing announces that, and from then on the records of known index rows are wrong: known
// series would get samples and not be found. So after the samples of each generation are written,
// the writer looks for one row key that the generation may rely on. It checks an arbitrary known
// row key, not whether the partition has any, because new series may have filled the partition
// again. If the row key is missing, the writer checks up to two more partitions. If row keys are
// missing in all three, or if nothing is left of any checked partition, it forgets everything.
// Otherwise it forgets only the partitions in which a row key is missing, if a KairosDB node may
// have removed it. If none runs, somebody has replaced the tables by older ones: what was written
// since then is missing everywhere.

const (
	// probeEvery is the least time between two probes, since generations may be a few
	// milliseconds apart.
	probeEvery = time.Second

	// probeMore is how many more partitions are checked if a row is missing in the first.
	probeMore = 2

	// restoredEvery is the least time before a single missing row key is again taken for a sign of
	// older tables. A row key that was deleted in a CQL shell stays missing, and must not cause all
	// index rows to be written again each second.
	restoredEvery = time.Hour

	// probeMarginSec is how long index rows must still live to be probed, so that they cannot
	// have expired by the clock of a node that is ahead.
	probeMarginSec = 60
)

// findings says which of a partition's index rows exist.
type findings uint8

const (
	allThere findings = iota
	oneMissing
	allMissing
)

// probe checks whether known index rows exist, and forgets the missing ones. parts are the
// partitions of the generation that was just written. Only one pass at a time may call it.
func (w *Writer) probe(ctx context.Context, parts map[rowkey.Partition]struct{}) error {
	now := w.now()
	if w.index.ks.Session == nil || !w.probed.IsZero() && now.Sub(w.probed) < w.probeEvery && !now.Before(w.probed) {
		return nil
	}
	var missing []rowkey.Partition
	looked, whole := 0, true
	for _, p := range inAnyOrder(parts) {
		k, alive := w.known.anyAlive(p, now.Unix()+probeMarginSec)
		if !alive {
			continue
		}
		found, err := w.lookInto(ctx, p, k)
		if err != nil {
			return err
		}
		looked++
		if found != allThere {
			missing = append(missing, p)
			whole = whole && found == allMissing
		}
		if len(missing) == 0 || looked > probeMore {
			break
		}
	}
	w.probed = now
	switch {
	case len(missing) == 0:
		return nil
	case len(missing) == looked && (whole || looked > probeMore), !w.known.mayLose() && now.Sub(w.restored) >= restoredEvery:
		w.restored = now
		w.log.Warn("index rows that this server wrote have vanished; perhaps tables were emptied, or restored from a snapshot. The index rows of all series are written again with the next samples; "+
			"run varve repair for series that get no new samples", "metric", missing[0].Metric, "row_time", missing[0].TimeMS)
		w.known.forget(rowkey.Everything)
	default:
		for _, p := range missing {
			w.known.forget(rowkey.Span{Metric: p.Metric, LowMS: p.TimeMS, HighMS: p.TimeMS})
		}
	}
	// The rows of table spec must exist before index rows are written again: with names but
	// without spec, the next start would take the keyspace for LEGACY.
	return w.index.ks.Confirm(ctx)
}

// inAnyOrder returns partitions in random order, so that each is equally likely to be checked.
// The order of a map varies too, but favours the entry that was added first.
func inAnyOrder(parts map[rowkey.Partition]struct{}) []rowkey.Partition {
	all := slices.Collect(maps.Keys(parts))
	shuffle(all)
	return all
}

// lookInto looks for known index rows of a partition: those of one row key, the row time, and
// the metric's name.
func (w *Writer) lookInto(ctx context.Context, p rowkey.Partition, k rowkey.Key) (findings, error) {
	found, err := w.find(ctx, p, k)
	if found == allThere || err != nil {
		return allThere, err
	}
	// An announced removal may have removed it after the last look for announcements.
	if err := w.deletes.look(ctx); err != nil {
		return allThere, err
	}
	if _, alive := w.known.anyAlive(p, w.now().Unix()+probeMarginSec); !alive {
		return allThere, nil
	}
	return found, nil
}

func (w *Writer) find(ctx context.Context, p rowkey.Partition, k rowkey.Key) (findings, error) {
	listed, err := isListed(ctx, w.index.ks, p)
	if err != nil || !listed {
		return allMissing, err
	}
	session := w.index.ks.Session
	ordered := rowkey.KeepsMapsInOrder(session.State().Version) // otherwise no row key can be found by its tags
	if ordered {
		there, err := rowkey.MayHold(ctx, session, findRowKey, append(p.Args(), k.Args()...)...)
		if err != nil {
			return allThere, err
		}
		if there {
			return w.findTagRow(ctx, p, k)
		}
	}
	first, err := rowkey.ReadFirst(ctx, session, p)
	switch {
	case err != nil || first.Hidden:
		return allThere, err
	case !first.Any:
		return allMissing, nil
	case !ordered:
		return allThere, nil
	}
	return oneMissing, nil
}

// findTagRow looks for a row of varve_row_index of a row key that exists. Nobody but Varve removes such
// rows, and a delete removes the row key too: if the row is missing, the table was emptied.
func (w *Writer) findTagRow(ctx context.Context, p rowkey.Partition, k rowkey.Key) (findings, error) {
	if !w.index.ks.Tables.Own {
		return allThere, nil
	}
	next, stop := iter.Pull(rowkey.TagPlaces(k.Tags, w.index.ks.IndexShards))
	defer stop()
	at, tagged := next()
	if !tagged {
		return allThere, nil // it has no such rows
	}
	there, err := rowkey.MayHold(ctx, w.index.ks.Session, findTagRow, append(at.Args(p), k.Args()...)...)
	if err != nil || there {
		return allThere, err
	}
	return allMissing, nil
}
