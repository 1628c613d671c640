package config

import "regexp"

// removed are the settings of earlier versions, and why each is gone. The error about
// such a setting also gives the value of the constant that replaced it, if there is
// one.
var removed = map[string]string{
	"server.max_header":          "a request may have 32KiB of headers",
	"server.read_header_timeout": "honest clients send their headers at once",
	"server.stall_timeout":       "clients that are slow, and not stalled, are served for as long as they take",
	"server.close_grace":         "server.shutdown_timeout bounds the whole stop",

	"ingest.busy_wait":             "a sender that is told to retry loses nothing",
	"ingest.store_wait":            "a sender that is told to retry loses nothing",
	"ingest.rejected_kept":         "/admin/rejected shows examples; varve_ingest_rejected_total counts all",
	"ingest.rejected_bytes":        "/admin/rejected shows examples",
	"ingest.max_samples_in_flight": "more samples in flight would only wait longer for the store",
	"ingest.new_series_burst":      "it is twenty times ingest.new_series_per_second",
	"ingest.max_metric_bytes":      "names are not meant for long texts; a point can be a string",
	"ingest.max_tag_name_bytes":    "names are not meant for long texts; a point can be a string",
	"ingest.max_string_bytes":      "it is what KairosDB can store; events of timelines hold more",
	"ingest.max_body_bytes":        "it is a quarter of ingest.body_memory",
	"ingest.max_unpacked_bytes":    "it is half of ingest.body_memory",
	"ingest.alias_cache":           "it is a quarter of ingest.max_series_memory, at most 128MiB",

	"audit.max_bytes": "the log may have 8 files beside its own",
	"audit.max_files": "files may have 64MiB",

	"telnet.read_buffer": "buffers adapt to the traffic",
	"telnet.retry_for":   "after that, the log and /admin/rejected show the lines",

	"carbon.read_buffer": "buffers adapt to the traffic",
	"carbon.retry_for":   "after that, the log and /admin/rejected show the points",
	"carbon.max_line":    "it is carbon's own limit",

	"query.workers":    "a query uses no more goroutines than there are processors",
	"query.max_queued": "query.max_wait limits how long queries wait",

	"kairos.slow_query":        "it applies to all APIs and is called query.slow",
	"kairos.slow_queries_kept": "the log has all slow queries",
	"kairos.max_value_size":    "metadata are short texts",
	"kairos.max_query_size":    "it holds some 50,000 tag values; several queries can ask for more",
	"kairos.response_buffer":   "longer answers are sent while they are computed",

	"graphite.max_event_size":     "a longer event can carry a link instead",
	"graphite.max_events":         "a shorter time, or tags, make the list shorter",
	"graphite.max_events_per_day": "something that happens more often is better stored as a series",

	"rollups.max_late_spans":  "beyond it the nearest spans are merged, which only costs time",
	"rollups.retry_interval":  "a failed run loses nothing",
	"rollups.batch_buckets":   "query.max_memory bounds what a run holds",
	"rollups.max_task_size":   "a task that is longer can be split",
	"rollups.max_task_memory": "it bounds what the tasks of all clients take while the server runs",
	"rollups.max_tasks":       "more tasks of one server would wait for each other",
	"rollups.poll_interval":   "a poll costs next to nothing",

	"transfer.max_line":       "a line may hold some of a series' points",
	"transfer.max_empty":      "an import over HTTP can be continued after that many lines, and varve import has no such bound",
	"transfer.max_concurrent": "a few transfers use all of a store; slow ones make room for others",

	"embedded.checkpoint_samples":    "embedded.head_bytes_max says how many samples are in memory",
	"embedded.checkpoint_interval":   "embedded.head_bytes_max says how many samples are in memory",
	"embedded.merge_files":           "the store plans merges by itself",
	"embedded.maintenance_interval":  "the store plans its maintenance by itself",
	"embedded.catalogue_cache_bytes": "embedded.page_cache_bytes is the cache that queries use",
	"embedded.log.segment_bytes":     "a log that is larger has more files",
	"embedded.log.buffer_bytes":      "writers wait for the disk beyond it",
	"embedded.log.recycle_segments":  "log files are reused automatically",
	"embedded.log.sync_interval":     "embedded.log.durability: fsync loses nothing",
	"embedded.late_hold":             "clients resend samples within a day",
	"embedded.head_bytes":            "it is three tenths of embedded.head_bytes_max",

	"cassandra.connections":     "statements share the connections, and two suffice for a node",
	"cassandra.bytes_in_flight": "cassandra.reads_in_flight and cassandra.writes_in_flight protect a node",
	"cassandra.latency_goal":    "Varve determines how many statements a node can handle",
	"cassandra.connect_timeout": "a node that cannot be reached is tried again in the background",
	"cassandra.scan_timeout":    "such statements run in the background or at the start",
	"cassandra.stall_after":     "a silent node is probed, and avoided meanwhile",
	"cassandra.outage_grace":    "reads fail soon when no node answers, and writes wait in the spool",
	"cassandra.attempts":        "query.timeout bounds reads, and writes wait in the spool",
	"cassandra.retry_pause":     "the pause doubles by itself",
	"cassandra.read_ahead":      "cassandra.reads_in_flight bounds how much is read at once",
	"cassandra.read_timeout":    "it is above Cassandra's own time limit of reads, and query.timeout bounds the query",
	"cassandra.write_timeout":   "it is above Cassandra's own time limit of writes, and the spool keeps samples that are not written yet",

	"cassandra.schema.index_shards":               "a keyspace keeps the number that it was created with",
	"cassandra.name":                              "metrics, health and errors call the cluster that is written to write_cluster",
	"cassandra.meta_cluster.name":                 "metrics, health and errors call it meta_cluster",
	"cassandra.read_clusters[].write_consistency": "deletes there use cassandra.write_consistency",
	"cassandra.meta_cluster.tls.ca_file":          "cassandra.tls.ca_file may have the authorities of all clusters, one after the other",
	"cassandra.meta_cluster.tls.cert_file":        "Varve shows all clusters the certificate in cassandra.tls.cert_file",
	"cassandra.meta_cluster.tls.key_file":         "Varve shows all clusters the certificate in cassandra.tls.cert_file",
	"cassandra.meta_cluster.tls.verify_host":      "cassandra.tls.verify_host applies to all clusters",
	"cassandra.read_clusters[].tls.ca_file":       "cassandra.tls.ca_file may have the authorities of all clusters, one after the other",
	"cassandra.read_clusters[].tls.cert_file":     "Varve shows all clusters the certificate in cassandra.tls.cert_file",
	"cassandra.read_clusters[].tls.key_file":      "Varve shows all clusters the certificate in cassandra.tls.cert_file",
	"cassandra.read_clusters[].tls.verify_host":   "cassandra.tls.verify_host applies to all clusters",
	"cassandra.schema.role":                       "clusters in read_clusters are only read; meta_cluster has only metadata",

	"cassandra.write.parallel":      "cassandra.writes_in_flight bounds the writes to a node",
	"cassandra.write.batch_rows":    "it is 400; larger batches are no faster, and a refused sample costs more in them",
	"cassandra.write.index_refresh": "it repairs what KairosDB nodes delete, and costs nothing without them",

	"cassandra.read.postings_cache_age": "Cassandra says what has changed before that",
	"cassandra.read.chunk_cache_age":    "cassandra.read.chunk_cache_bytes: 0 turns the cache off",
	"cassandra.read.finished_after":     "rows that are written again are noticed",
	"cassandra.read.index_reads":        "cassandra.reads_in_flight bounds how much is read at once",
	"cassandra.read.settle":             "clocks that differ by more must be corrected",
	"cassandra.read.cover_interval":     "cassandra.read.cover_rate says how fast the inverted index is completed",

	"cassandra.hedge_after": "a read is asked of a second replica once it takes twice as long as most of its kind",

	"cassandra.delete.parallel": "a delete works on as many rows at once as a node handles, at most 32",
	"cassandra.delete.job_rows": "GET /admin/deletes shows jobs, DELETE /admin/deletes/{id} cancels one",
	"cassandra.delete.horizon":  "rows are three weeks long, and points of KairosDB nodes are seldom later than that",

	"cassandra.spool.store_linger":         "with cassandra.spool.acknowledge: store clients wait, so samples are sent at once",
	"cassandra.spool.generation_samples":   "cassandra.spool.max_memory says how many samples go together",
	"cassandra.spool.max_idle_series":      "cassandra.spool.max_memory bounds what the spool holds",
	"cassandra.spool.log.segment_bytes":    "a log that is larger has more files",
	"cassandra.spool.log.buffer_bytes":     "writers wait for the disk beyond it",
	"cassandra.spool.log.recycle_segments": "log files are reused automatically",
	"cassandra.spool.log.sync_interval":    "cassandra.spool.log.durability: fsync loses nothing",
	"cassandra.spool.acknowledge_timeout":  "a client that waits longer can send again, which is harmless",
	"cassandra.spool.generation_bytes":     "it is a third of cassandra.spool.max_memory",
}

// indexes matches the indexes of items in keys: a removed setting was removed
// from all items.
var indexes = regexp.MustCompile(`\[\d+\]`)

// orRemoved returns the end of an error about an unknown name. spelt returns
// the name of a setting in the layer of that name, for example as a flag.
func (l *layers) orRemoved(name string, spelt func(field) string, otherwise func() string) string {
	for _, f := range l.fields {
		if f.items && spelt(f) == name {
			return "; " + f.key + " is a list of sections, which only a file can set (--" + fileFlag + ")"
		}
	}
	name = indexes.ReplaceAllString(name, "[]")
	for key, why := range removed {
		if spelt(field{key: key}) != name {
			continue
		}
		if value, ok := l.standard[key]; ok {
			return "; it was removed and is always " + value + ": " + why
		}
		return "; it was removed: " + why
	}
	return otherwise()
}
