package schema

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"varve/internal/cassandra/cql"
)

// maxHosts is how many KairosDB nodes are named.
const maxHosts = 10

// lookAtKairosDB lists the KairosDB nodes that use the keyspace.
func (p *preflight) lookAtKairosDB(ctx context.Context) error {
	if _, ok := p.tables[serviceIndexTable]; !ok {
		p.add(Dubious, "KairosDB", "there is no table service_index, in which its nodes are listed", "set cassandra.delete.kairosdb_nodes to yes while KairosDB runs here")
		return nil
	}
	var alive []string
	err := eachHost(ctx, p.session, time.Now(), func(host string, age time.Duration) {
		if len(alive) < maxHosts {
			alive = append(alive, fmt.Sprintf("%s (%d s ago)", host, max(0, int(age.Seconds()))))
		}
	})
	if err != nil {
		return err
	}
	if len(alive) == 0 {
		p.add(Good, "KairosDB", fmt.Sprintf("no node was listed in the last %v (service_index, _Hosts)", HostLife), "")
		return nil
	}
	p.add(Good, "KairosDB", "nodes: "+strings.Join(alive, ", ")+"; roll-ups are left to them for a minute, and deletes keep index rows that they may use", "")
	return nil
}

// The duration of a repair, as TestRepairStatements of package remove measured it with one node
// and Varve on the same two cores: 30,000 row keys with two tags took 5.9 s in one partition of
// row_keys, and 31 s in 3000 partitions; 10,000 row keys in 10,000 partitions took 73 s.
const (
	repairRow       = 200 * time.Microsecond // a row and its row key
	repairPartition = 7 * time.Millisecond   // a partition of row_keys: a metric and row time
)

// coverPartition is how long coverage takes for a metric and row time besides its row keys: it checks at most
// 100 metrics, and as many row times, a second.
const coverPartition = 20 * time.Millisecond

// coverTime estimates how long coverage takes.
func coverTime(rows, partitions int64, rate int) time.Duration {
	return time.Duration(rows)*time.Second/time.Duration(rate) + time.Duration(partitions)*coverPartition
}

// repairTime estimates how long a repair takes.
func repairTime(rows, partitions int64) time.Duration {
	return time.Duration(rows)*repairRow + time.Duration(partitions)*repairPartition
}

// lookAtSize estimates the number of rows, and how long coverage and repair take.
func (p *preflight) lookAtSize(ctx context.Context) error {
	if _, ok := p.tables[DataPoints]; !ok {
		return nil
	}
	n, exact, err := p.countPartitions(ctx, sampleRows)
	if err != nil {
		return err
	}
	about := "about "
	if exact {
		about = ""
	}
	p.add(Good, "size", fmt.Sprintf("%s%d rows; one holds a series for a row's width", about, n), "")
	if p.reads() {
		return nil
	}
	var partitions int64
	if _, ok := p.tables[rowKeysTable]; ok {
		if partitions, _, err = p.countPartitions(ctx, sampleRowKeys); err != nil {
			return err
		}
	}
	if rate := p.o.CoverRate; rate > 0 {
		took := coverTime(n, partitions, rate)
		p.add(Good, "coverage", fmt.Sprintf("some %s until selective queries are quick everywhere: %d row keys (cassandra.read.cover_rate) and 50 metrics and row times a second, "+
			"from half an hour after the start on; those that a query needs come first", seconds(int64(took/time.Second)), rate), "")
	}
	took := repairTime(n, partitions)
	p.add(Good, "repair", fmt.Sprintf("varve repair takes some %s: %v for each row, and %v for each of about %d metrics and row times, as measured with one node and Varve on two cores",
		seconds(int64(took/time.Second)), repairRow, repairPartition, partitions), "")
	return nil
}

// seconds formats a duration of n seconds, rounded up so that it is never 0.
func seconds(n int64) string { return (time.Duration(n+1) * time.Second).String() }

// Statements that list the partitions of a table from a token onwards. The token is the last
// column.
var (
	sampleRows    = &cql.Statement{Name: "preflight_sample", PageSize: samplePage, Text: "SELECT DISTINCT key, token(key) FROM data_points WHERE token(key) >= ? LIMIT ?"}
	sampleRowKeys = &cql.Statement{Name: "preflight_sample_row_keys", PageSize: samplePage, Text: "SELECT DISTINCT metric, table_name, row_time, token(metric, table_name, row_time) " +
		"FROM row_keys WHERE token(metric, table_name, row_time) >= ? LIMIT ?"}
)

// skipped is how many columns before the token of these statements are ignored.
var skipped = map[*cql.Statement]int{sampleRows: 1, sampleRowKeys: 3}

const (
	samplePage = 500
	samples    = 16 // tokens of the ring at which partitions are sampled
	sampleRow  = 300
)

// countPartitions counts the partitions of a table, exactly if they are few. Otherwise it
// estimates their number from samples at some tokens of the ring, since tokens are evenly
// distributed.
func (p *preflight) countPartitions(ctx context.Context, list *cql.Statement) (n int64, exact bool, err error) {
	n, _, err = p.sample(ctx, list, math.MinInt64, samples*sampleRow)
	if err != nil || n < samples*sampleRow {
		return n, true, err
	}
	var seen int64
	var span float64
	for i := range int64(samples) {
		from := math.MinInt64 + int64(uint64(i)<<60)
		found, last, err := p.sample(ctx, list, from, sampleRow)
		if err != nil {
			return 0, false, err
		}
		if found < sampleRow {
			last = math.MaxInt64
		}
		seen += found
		span += float64(last) - float64(from)
	}
	return int64(float64(seen) * math.Exp2(64) / span), false, nil
}

// sample counts the partitions from a token onwards, up to a limit.
func (p *preflight) sample(ctx context.Context, list *cql.Statement, from int64, limit int) (n, last int64, err error) {
	rows := p.session.Query(ctx, list, from, limit)
	columns := append(make([]any, skipped[list]), &last)
	for rows.Scan(columns...) {
		n++
	}
	return n, last, rows.Close()
}
