package partition

import (
	"varve/internal/chunk"
	"varve/internal/model"
)

// gatherSamples and gatherBytes bound the samples of one series that a
// checkpoint or merge holds in memory.
const (
	gatherSamples = 16 * chunk.TargetSamples
	gatherBytes   = 4 << 20 // of values of variable kinds
)

// Gather collects the samples of one series after another, and adds them to an
// output in full chunks.
type Gather struct {
	Out     *Output
	Columns model.Columns // not added yet; callers append to it

	id   model.SeriesNumber
	kind model.Kind
	rest model.Columns // scratch
}

// Begin starts a series. End must have been called for the series before.
func (g *Gather) Begin(id model.SeriesNumber, kind model.Kind) {
	g.id, g.kind = id, kind
	g.Columns.Reset()
}

// Full reports whether the collected samples are many.
func (g *Gather) Full() bool {
	return g.Columns.Len() >= gatherSamples || len(g.Columns.Data) >= gatherBytes
}

// Append collects the samples [from, to) of some columns, at most a block, and flushes if
// necessary.
func (g *Gather) Append(cols *model.Columns, from, to int) error {
	g.Columns.Append(cols, from, to)
	return g.FlushIfFull()
}

// DropExpired drops the collected samples that have expired at nowMS.
func (g *Gather) DropExpired(nowMS int64) { g.Columns.DropExpired(&g.rest, nowMS) }

// FlushIfFull adds the collected samples to the output if they are many. It keeps the
// samples that do not fill a chunk, unless their values are long.
func (g *Gather) FlushIfFull() error {
	if !g.Full() {
		return nil
	}
	cut := g.Columns.Len()
	if len(g.Columns.Data) < gatherBytes {
		cut -= cut % chunk.TargetSamples
	}
	g.rest.Reset()
	g.rest.Append(&g.Columns, cut, g.Columns.Len())
	head := g.Columns.Slice(0, cut)
	err := g.Out.Add(g.id, g.kind, &head)
	g.Columns, g.rest = g.rest, g.Columns
	return err
}

// End adds the remaining samples.
func (g *Gather) End() error { return g.Out.Add(g.id, g.kind, &g.Columns) }
