// Package partition writes block files: samples of one series after another, each
// series by time, come in, and what comes out is one file for each partition with
// many samples, and one spill file for the rest.
//
// A partition is a span of time, see rowtime.Partition. No chunk crosses a
// partition's border. A thousand stray times do not make a thousand files: what has
// fewer samples than DenseSamples shares the spill file.
//
// All files of an output become readable together: Finish returns them all, or none
// and removes what was written. Their names are durable then, but nothing refers to
// them until the caller has committed them to the manifest.
package partition
