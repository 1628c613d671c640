// Command bench measures a Varve server from outside, on whole workloads, and
// compares it with other servers. It generates the points, starts each server
// in an empty directory, sends it the points over sockets as collectors do,
// checks that every point was stored, asks all servers the same questions, and
// prints the costs and their ratios.
//
//	scripts/bench-peers.sh    # once: installs the peers, as root, on Debian; KairosDB
//	                          # comes by itself, through Maven, where Java is
//	go run ./bench            # everything, 15 minutes, 30 on a busy machine
//	go run ./bench -quick     # a first look, 2 minutes
//
// Peers that are not installed are left out. Stages (-only) are:
//
//	W1 W2 W3    put lines: long series, many new series, few fast series
//	json        W1 as HTTP bodies: KairosDB's JSON for Varve, OpenTSDB's for peers
//	shapes      other kinds of values, times and orders; also one by its name:
//	            integers doubles noisy constant sparse bursts late million
//	queries     questions about W1, answers compared, then timed
//	busy        the same by four askers at once, while 100,000 points/s come in
//	dense       aggregates of 17.28 M points of one metric, before they are in files
//	            and after
//	restart     start after kill -9, start with a million series
//	tenants     how long one tenant waits while another one floods the server with points,
//	            with questions that cost much, and with questions for much; also while
//	            the same flood goes to another server on the same machine
//	timelines   appending events and reading the newest page, beside a stream of Redis and a
//	            table of PostgreSQL (both from Debian), with fsync before each answer
//	graphite    Graphite's lines and pickles beside VictoriaMetrics, go-carbon and Debian's
//	            carbon-cache, globs among 10 million names, sums of 1,000 series, retention by
//	            stages; also a part of it: graphite-send graphite-globs graphite-render
//	            graphite-retention
//	cassandra   Varve over Cassandra beside KairosDB, 20 minutes, when -peers names
//	            varve-cassandra and kairosdb: an hour of W1 as lines and as JSON, three
//	            minutes at the pace of collectors, queries with and without what was
//	            read before, one of 300,000 series, also while their points are on their way,
//	            draining beside a delete of 600,000 rows; also a part of it: cassandra-ingest
//	            cassandra-live cassandra-queries cassandra-cities cassandra-deletes
//	cassandra-upkeep cassandra-upkeep-beside
//	            an hour at the pace of collectors: what the index costs, without and with a
//	            KairosDB on the same keyspace; only if named, with -timeout 2h
//
// Servers take turns: in each round every server runs the stage once, and
// a ratio compares two servers in one round. The median over rounds is printed.
// In queries, servers take turns by single requests. Between machines and
// versions, compare the server's CPU time per point, which the operating system
// accounts for the server process alone (/proc, Linux only): wall time on a
// shared machine says little.
//
// What is comparable and what is not:
//
//   - Peers are measured in their best state: merges are forced, and writes have
//     ended, before sizes are measured and questions asked. VictoriaMetrics runs
//     without its cache of answers (nocache): with the cache, it shifts the
//     requested buckets, so that answers differ.
//   - Points count as stored once the server says so and a query can see them.
//     By then Varve has synced them to disk; the peers do not promise that by
//     default.
//   - In timelines, all servers get the same events over the same number of connections, 1 or
//     1000 events per request. Redis is set to sync its log before each answer; it assigns the
//     ids, which are its times, itself, and keeps all events in memory. PostgreSQL gets batches
//     by COPY.
//   - Response times are measured by a client that keeps its connection and only calls
//     write(2) and read(2). With Go's net/http, which passes answers between goroutines,
//     small answers of all servers take about 0.07 ms longer.
//   - varve-cassandra is Varve over a node of Cassandra. Points count as stored
//     once they are in Cassandra. Its figures include both processes.
//   - KairosDB runs on one node of Cassandra, with heaps of 2 GB; its figures
//     include both processes. In stages of the embedded store it gets points only
//     once, as JSON, and is then queried. Its size is not measured, because most of
//     the points would be in Cassandra's log.
//   - Prometheus accepts no put lines. It gets the same points by remote write,
//     which need no parsing: less work for it.
//
// All listeners are on loopback, all files below one temporary directory. Both
// are removed when the command ends, even after a failure, a signal or
// -timeout.
package main
