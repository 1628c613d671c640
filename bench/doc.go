// Command bench measures a Varve server from outside, on whole workloads, next
// to the servers it wants to be compared with: one command generates the
// points, starts each server in an empty directory, sends it the points over
// sockets as collectors do, checks that every point is there, asks the same
// questions, and prints what it cost and how the costs compare.
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
// a ratio is that of one round, of which the median is printed. With queries the
// turns are single requests. Server CPU per point is what to compare between
// machines and versions, as the operating system accounts it for the server
// process alone (/proc, Linux only): wall time on a shared machine says little.
//
// What is comparable and what is not:
//
//   - Peers are given what they can do best: merges are forced and writes are
//     quiet before sizes are taken and questions asked. VictoriaMetrics does
//     without its cache of answers (nocache): with it, it moves the buckets that
//     were asked for, so that answers differ.
//   - Points count as stored once the server says so and a query can see them.
//     Varve has them on disk by then, with fsync; the peers at their defaults
//     do not promise that.
//   - Of timelines all servers get the same events over as many connections, one a request
//     or 1000. Redis syncs its log always, and gives the ids, which are its times, by itself.
//     PostgreSQL copies batches. Redis keeps all events in memory.
//   - Times of answers are those of a client that keeps its connection and does nothing but
//     write(2) and read(2). With Go's net/http, which passes them between goroutines, small
//     answers of all servers take about 0.07 ms longer.
//   - varve-cassandra is Varve over a node of Cassandra, with the points in
//     Cassandra when they count as stored. Its figures are those of both.
//   - KairosDB runs on one node of Cassandra, with heaps of 2 GB; its figures are
//     those of both processes. Beside the embedded store it takes JSON only, once,
//     and is asked about that; no sizes are taken, since they would be those of
//     Cassandra's log.
//   - Prometheus takes no put lines. It gets the same points by remote write,
//     which arrive parsed: less work for it.
//
// All listeners are on loopback, all files below one temporary directory. Both
// are gone when the command ends, also by a failure, a signal or -timeout.
package main
