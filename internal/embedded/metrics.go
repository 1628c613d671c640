package embedded

import (
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/collectors"
)

// metrics of a store. Names begin with varve_store_.
type metrics struct {
	*collectors.Set
	samples, batches, stalls             prometheus.Counter
	deletions, forgotten                 prometheus.Counter
	checkpoints, checkpointFailures      prometheus.Counter
	checkpointSamples                    prometheus.Counter
	merges, mergeFailures, mergedSamples prometheus.Counter
	expiredSamples, deletedSamples       prometheus.Counter
	checkpointSeconds, mergeSeconds      prometheus.Histogram
	spaceBlocks, mergesPutOff            prometheus.Counter
	folds, folded, outlived, foldsPutOff prometheus.Counter
	damagedReads                         prometheus.Counter
	expiryScans, expiryScanBytes         prometheus.Counter
	expiryScansPutOff                    prometheus.Counter
	expiryScanFailures                   prometheus.Counter
	views                                prometheus.Gauge
}

func newMetrics(s *Store) *metrics {
	m := &metrics{Set: collectors.Named("varve_store_")}
	counter, gauge, total := m.Counter, m.GaugeFunc, m.CounterFunc
	seconds := prometheus.ExponentialBuckets(0.001, 4, 10)
	m.samples = counter("appended_samples_total", "Samples acknowledged.")
	m.batches = counter("appended_batches_total", "Batches acknowledged.")
	m.stalls = counter("append_stalls_total", "Appends that waited because the head was full.")
	total("append_turn_waits_total", "Appends that waited until other batches were applied; client addresses take turns.", func() float64 { return float64(s.log.TurnWaits()) })
	m.deletions = counter("deletions_total", "Deletions executed.")
	m.forgotten = counter("forgotten_series_total", "Series that lost their last sample.")
	m.checkpoints = counter("checkpoints_total", "Times the head was written to files.")
	m.checkpointFailures = counter("checkpoint_failures_total", "Checkpoints that failed; they are retried.")
	m.checkpointSamples = counter("checkpoint_samples_total", "Samples that checkpoints wrote to files.")
	m.checkpointSeconds = m.Histogram("checkpoint_seconds", "Duration of checkpoints.", seconds)
	m.merges = counter("merges_total", "Merges of files.")
	m.mergeFailures = counter("merge_failures_total", "Rounds of merging that failed.")
	m.mergedSamples = counter("merged_samples_total", "Samples that merges wrote.")
	m.folds = counter("folds_total", "File rewrites that made data coarser according to a retention policy.")
	m.folded = counter("folded_samples_total", "Samples, and buckets of finer stages, that were folded into coarser buckets.")
	m.foldsPutOff = counter("folds_put_off_total", "Folds postponed because roll-ups stored results in their range.")
	m.outlived = counter("outlived_samples_total", "Samples and buckets that were removed because they were older than the last stage of their policy.")
	m.mergeSeconds = m.Histogram("merge_seconds", "Duration of merges.", seconds)
	m.expiredSamples = counter("expired_file_samples_total", "Samples dropped with whole expired files.")
	m.deletedSamples = counter("deleted_file_samples_total", "Samples dropped with files whose samples were all deleted.")
	m.spaceBlocks = counter("disk_full_total", "Times the store stopped accepting writes for lack of disk space.")
	m.mergesPutOff = counter("merges_put_off_total", "Merges postponed for lack of disk space; each is counted at every interval.")
	m.damagedReads = counter("damaged_reads_total", "Reads by queries and merges that found damage in a block file.")
	m.expiryScans = counter("expiry_scans_total", "Scans of block files for series whose samples have expired.")
	m.expiryScanBytes = counter("expiry_scan_bytes_total", "Bytes of block files that expiry scans read.")
	m.expiryScansPutOff = counter("expiry_scans_put_off_total", "Expiry scans postponed because earlier scans had used up the allowance for reading; each is counted at every interval.")
	m.expiryScanFailures = counter("expiry_scan_failures_total", "Expiry scans that failed; they are retried.")
	m.views = m.Gauge("views", "Open views, one for each query.")

	gauge("series", "Series known.", func() float64 { return float64(s.series.Count()) })
	total("index_entries_read_total", "Index values and series ids that selections examined.", func() float64 { return float64(s.index.EntriesRead()) })
	gauge("index_bytes", "Memory of the index, approximate.", func() float64 { return float64(s.index.Bytes()) })
	gauge("series_doubtful", "Series that may be empty after a cancelled delete and are still to be checked.", func() float64 { return float64(s.doubts()) })
	gauge("series_unused", "Series that were created and have no sample yet.", func() float64 { return float64(s.series.Unlogged()) })
	total("series_ids_total", "Series ids assigned since the store was created.", func() float64 { return float64(s.series.NextID()) })
	total("series_ids_reused_total", "Ids of forgotten series that were reused since the process started.", func() float64 { _, n := s.series.Left(); return float64(n) })
	gauge("series_ids_left", "Series ids left for new series; ids of forgotten series count once they can be reused.", func() float64 { n, _ := s.series.Left(); return float64(n) })
	gauge("head_samples", "Samples in the active head.", func() float64 { return float64(s.active.Load().Samples()) })
	gauge("head_bytes", "Size of samples that are not in files yet, with the full length of byte strings, and of series names that are not in the catalogue yet.", func() float64 { return float64(s.buffered()) })
	gauge("head_limit_bytes", "Size at which writes wait until samples are in files. While embedded.head_bytes_max is 0, it grows with the number of series whose samples are in memory.", func() float64 { return float64(s.headMost()) })
	gauge("page_cache_bytes", "Memory of cached block file pages and their indexes.", func() float64 { return float64(s.cache.Bytes()) })
	total("page_cache_hits_total", "Pages found in memory.", func() float64 { return float64(s.cache.Hits.Load()) })
	total("page_cache_misses_total", "Pages read from files.", func() float64 { return float64(s.cache.Misses.Load()) })
	gauge("damaged_files", "Block files in which damage was found; merges skip them.", func() float64 {
		st := s.acquire()
		defer s.release(st)
		n, _ := st.damaged()
		return float64(n)
	})
	gauge("files", "Block files.", func() float64 { return float64(s.Usage().Files) })
	gauge("file_bytes", "Size of the block files.", func() float64 { return float64(s.Usage().FileBytes) })
	gauge("file_samples", "Samples in block files, overwritten and deleted ones included until they are merged.", func() float64 { return float64(s.Usage().FileSamples) })
	gauge("held_file_bytes", "Size of the block files that are folded later: late samples in them may be sent again, or the server was started or the rules changed within the last hour.", func() float64 { return float64(s.heldBytes.Load()) })
	gauge("pending_deletions", "Deletions that have not been applied to every file.", func() float64 { return float64(s.Usage().Deletions) })
	gauge("catalogue_bytes", "Disk space of the catalogue.", func() float64 { return float64(s.catalogue.DiskSpace()) })
	return m
}

// Usage says what a store holds in files.
type Usage struct {
	Files       int
	FileBytes   int64
	FileSamples int64
	Deletions   int
}

// Usage returns the current numbers.
func (s *Store) Usage() Usage {
	st := s.acquire()
	defer s.release(st)
	u := Usage{Files: len(st.files), Deletions: len(st.deletions())}
	for _, f := range st.files {
		u.FileBytes += f.Bytes
		u.FileSamples += f.Samples
	}
	return u
}
