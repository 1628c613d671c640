// Package partition writes block files. Its input is the samples of one series after another, each
// series by time. Its output is one file for each partition with many samples, and one spill file
// for the rest.
//
// A partition is a span of time, see rowtime.Partition. No chunk crosses a
// partition's border. Partitions with fewer samples than DenseSamples share the spill
// file, so that scattered timestamps do not create a file each.
//
// Finish returns all files of an output, or removes them and returns none. Their names
// are durable then, but nothing refers to them until the caller has committed them to
// the manifest.
package partition
