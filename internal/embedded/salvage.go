package embedded

import (
	"context"
	"errors"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/embedded/offline"
	"varve/internal/registry"
	"varve/internal/store"
	"varve/internal/wal"
)

// Repair is [offline.Repair] of an embedded store.
func Repair(ctx context.Context, fs vfs.FS, dir string, o offline.RepairOptions) (*offline.CheckReport, error) {
	return offline.Repair(ctx, fs, dir, o, func() (offline.SalvagedLog, error) { return salvageLog(fs, dir, o) })
}

// salvageLog brings every readable record of a damaged log into block files: the store is opened
// as by a server, but continues after damage, and writes its memory to files. Their commit makes
// the damaged log superfluous.
func salvageLog(fs vfs.FS, dir string, o offline.RepairOptions) (offline.SalvagedLog, error) {
	salvage := &logSalvage{}
	cfg := DefaultConfig()
	cfg.MinFreeBytes = 0
	s, err := Open(fs, dir, cfg, Options{Now: o.Now, Fatal: o.Fatal, EndWhenFull: true, RulesUnknown: true, salvage: salvage})
	if err != nil {
		return offline.SalvagedLog{}, err
	}
	samples := s.active.Load().Samples()
	stats := salvage.stats
	salvaged := offline.SalvagedLog{
		Records: stats.Records, Samples: samples, SkippedBytes: stats.SkippedBytes, Damages: stats.Damages, Unusable: salvage.unusable,
	}
	return salvaged, errors.Join(s.checkpoint(), s.Close())
}

// A logSalvage lets a replay continue after damage, and counts what is lost.
// With nil, damage ends the replay.
type logSalvage struct {
	stats    wal.ReplayStats
	unusable int64 // records that are whole but name unknown series
}

func (l *logSalvage) onDamage() func(*store.CorruptionError) bool {
	if l == nil {
		return nil
	}
	return func(*store.CorruptionError) bool { return true }
}

func (l *logSalvage) done(stats wal.ReplayStats) {
	if l != nil {
		l.stats = stats
	}
}

// keep reports whether the readable part of an incompletely decoded record is used.
func (l *logSalvage) keep(series *registry.Registry, step *replayStep) bool {
	if l == nil {
		return false
	}
	l.unusable++
	var ok bool
	if step.kinds, ok = series.Kinds(step.kinds[:0], step.batch.Samples); !ok || step.deletion != nil {
		step.batch.Samples, step.kinds, step.deletion = step.batch.Samples[:0], step.kinds[:0], nil
	}
	return true
}
