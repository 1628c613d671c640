package offline

import (
	"fmt"

	"varve/internal/embedded/datadir"
	"varve/internal/record"
	"varve/internal/store"
	"varve/internal/units"
	"varve/internal/wal"
)

const logRemedy = "stop the server and run varve repair: it keeps a copy of the damaged segment and recovers every record that can be read; or restore the last backup"

const missingLogRemedy = "put the file back, or restore the last backup; to continue without its records, stop the server and run varve repair"

type logCheck struct {
	*checker
	known   bool // known and unknown ids can be told apart
	batch   store.Batch
	damages []*store.CorruptionError
}

// logFiles checks the segments of the log. known is false if there is no
// catalogue to tell which series there are.
func (c *checker) logFiles(o wal.ReplayOptions, known bool) error {
	l := &logCheck{checker: c, known: known}
	o.OnDamage = func(e *store.CorruptionError) bool {
		l.damages = append(l.damages, e)
		return c.ctx.Err() == nil && len(l.damages) < findingsMax
	}
	stats, err := wal.Replay(c.fs, c.fs.PathJoin(c.dir, datadir.Log), o, l.record)
	c.report.Segments += stats.Segments
	for _, e := range l.damages {
		l.report1(e, stats)
	}
	if stats.CutBytes > 0 {
		c.note("the log ends in %d bytes of an incomplete write: a crash leaves such bytes, and nothing in them was acknowledged", stats.CutBytes)
	}
	if isDamage(err) {
		return nil // already reported; too many to continue
	}
	return err
}

func (l *logCheck) report1(e *store.CorruptionError, stats wal.ReplayStats) {
	cost := fmt.Sprintf("the records in the damaged bytes: samples, new series or deletions that are in no block file yet; in total %s in %s of the log; the server does not start",
		units.Count(stats.SkippedBytes, "byte"), units.Count(int64(len(l.damages)), "place"))
	f := Finding{File: e.File, Offset: e.Offset, Problem: e.Reason, Cost: cost, Remedy: logRemedy, part: partLog}
	if f.Offset < 0 {
		l.report.outdated = true
		f.Remedy = missingLogRemedy
		f.Cost = "the records in that file: samples, new series or deletions that are in no block file yet; the server does not start"
	}
	l.find(f)
}

// record checks one record.
func (l *logCheck) record(s wal.Segment, typ byte, payload []byte) error {
	l.report.Records++
	var err error
	switch typ {
	case record.TypeBatch:
		err = l.batchRecord(payload)
	case record.TypeDeletion:
		_, err = record.ParseDeletion(payload)
	default:
		err = fmt.Errorf("record of unknown type %d: written by a newer build", typ)
	}
	if err != nil && len(l.damages) > 0 {
		err = nil // its series was introduced in the damaged part
	}
	if err != nil {
		l.find(Finding{
			File: l.fs.PathJoin(l.dir, datadir.Log, s.FileName()), Offset: -1, part: partLog,
			Problem: err.Error(),
			Cost:    fmt.Sprintf("one record of %d bytes; the server does not start", len(payload)),
			Remedy:  logRemedy,
		})
	}
	return l.read("log", int64(len(payload)))
}

func (l *logCheck) batchRecord(payload []byte) error {
	rest, _, err := l.definitions(payload)
	if err != nil || !l.known {
		return err
	}
	l.batch.Reset(0)
	err = record.Samples(rest, l.kind, &l.batch)
	l.checker.report.Logged += int64(len(l.batch.Samples))
	return err
}
