package kairosrows

import (
	"context"

	"varve/internal/spool"
)

// Write implements spool.Sink.
func (w *Writer) Write(ctx context.Context, g *spool.Generation) error {
	return w.write(ctx, g.StampMS(), g)
}
