package write

import (
	"context"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
)

var findRowKey = &cql.Statement{Name: "find_known_row_key", Level: cql.Quorum, PageSize: 2,
	Text: "SELECT data_type FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND data_type = ? AND tags = ?"}

// Somebody may empty or drop the index tables while the process runs, by TRUNCATE or
// DROP in a CQL shell. Nothing announces that, and what is known of index rows is wrong
// from then on: series that were known would have samples and not be found. So each
// generation looks for one row key that it may rely on, after its samples are written. It
// takes any that is known of a partition: new series may have filled the partition again.
// If the row key is not there although it should be, it looks into two more partitions; if
// row keys are missing there too, or if nothing is left of the only partition, everything
// is forgotten. Else the partition is forgotten alone: a KairosDB node may have removed the
// row key.

const (
	// probeEvery is the least time between two looks: generations may be a few
	// milliseconds apart.
	probeEvery = time.Second

	// probeMore is how many further partitions are looked at if something is missing in the
	// first.
	probeMore = 2

	// probeMarginSec is how much longer index rows have to live so that they cannot have
	// expired, by the clock of a node.
	probeMarginSec = 60
)

// What a look into a partition says of its index rows.
type findings uint8

const (
	allThere findings = iota
	oneMissing
	allMissing
)

// probe looks whether index rows that are known are there, and forgets what is not.
// parts are of the generation that was just written; one pass at a time.
func (w *Writer) probe(ctx context.Context, parts map[rowkey.Partition]struct{}) error {
	now := w.now()
	if w.index.ks.Session == nil || !w.probed.IsZero() && now.Sub(w.probed) < w.probeEvery && !now.Before(w.probed) {
		return nil
	}
	var missing []rowkey.Partition
	looked, whole := 0, true
	for p := range parts { // in any order
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
	case len(missing) == looked && (whole || looked > probeMore):
		w.log.Warn("index rows that this server wrote have vanished; perhaps tables were emptied. Those of all series are written again with their next samples; "+
			"for series that get none, run varve repair", "metric", missing[0].Metric, "row_time", missing[0].TimeMS)
		w.known.forget(rowkey.Everything)
	default:
		for _, p := range missing {
			w.known.forget(rowkey.Span{Metric: p.Metric, LowMS: p.TimeMS, HighMS: p.TimeMS})
		}
	}
	// Index rows come after what says how rows are placed: names without it would make the
	// keyspace LEGACY at the next start.
	return w.index.ks.Confirm(ctx)
}

// lookInto looks for index rows of a partition that are known to be there: those of one row
// key, the row time, and the metric's name.
func (w *Writer) lookInto(ctx context.Context, p rowkey.Partition, k rowkey.Key) (findings, error) {
	found, err := w.find(ctx, p, k)
	if found == allThere || err != nil {
		return allThere, err
	}
	// It may have been removed as it should be, after the last look at who removes what.
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
	ordered := rowkey.KeepsMapsInOrder(session.State().Version) // else no row key is found by its tags
	if ordered {
		there, err := rowkey.MayHold(ctx, session, findRowKey, append(p.Args(), k.Args()...)...)
		if err != nil || there {
			return allThere, err
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
