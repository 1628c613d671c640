package write

import (
	"context"
	"time"

	"varve/internal/cassandra/kairosrows/rowkey"
)

// Somebody may empty or drop the index tables while the process runs, by TRUNCATE or
// DROP in a CQL shell. Nothing announces that, and what is known of index rows is wrong
// from then on: series that were known would have samples and not be found. So each
// generation looks at one partition that it relies on, after its samples are written. If
// that is not there although it should be, it looks at two more; if these are missing too,
// everything is forgotten. One that is missing alone is forgotten alone: a KairosDB node
// may have removed it.

const (
	// probeEvery is the least time between two looks: generations may be a few
	// milliseconds apart.
	probeEvery = time.Second

	// probeMore is how many further partitions are looked at if the first is missing.
	probeMore = 2

	// probeMarginSec is how much longer index rows have to live so that they cannot have
	// expired, by the clock of a node.
	probeMarginSec = 60
)

// probe looks whether index rows that are known are there, and forgets what is not.
// parts are of the generation that was just written; one pass at a time.
func (w *Writer) probe(ctx context.Context, parts map[rowkey.Partition]struct{}) error {
	now := w.now()
	if w.index.ks.Session == nil || !w.probed.IsZero() && now.Sub(w.probed) < w.probeEvery && !now.Before(w.probed) {
		return nil
	}
	var missing []rowkey.Partition
	looked := 0
	for p := range parts { // in any order
		if !w.known.alive(p, now.Unix()+probeMarginSec) {
			continue
		}
		gone, err := w.vanished(ctx, p)
		if err != nil {
			return err
		}
		looked++
		if gone {
			missing = append(missing, p)
		}
		if len(missing) == 0 || looked > probeMore {
			break
		}
	}
	w.probed = now
	switch {
	case len(missing) == 0:
		return nil
	case len(missing) == looked:
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

// vanished reports whether index rows of a partition are missing that are known to be
// there: its first row key, its row time, or the metric's name.
func (w *Writer) vanished(ctx context.Context, p rowkey.Partition) (bool, error) {
	first, err := rowkey.ReadFirst(ctx, w.index.ks.Session, p)
	if err != nil {
		return false, err
	}
	there := first.Any || first.Hidden
	if there {
		there, err = isListed(ctx, w.index.ks, p)
	}
	if there || err != nil {
		return false, err
	}
	// It may have been removed as it should be, after the last look at who removes what.
	if err := w.deletes.look(ctx); err != nil {
		return false, err
	}
	return w.known.alive(p, w.now().Unix()+probeMarginSec), nil
}
