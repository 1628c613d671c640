package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// upkeepFor is how long upkeep is measured: the server checks its index half an hour after
// its start, and then once an hour.
const upkeepFor = time.Hour

// upkeepBeside is the stage in which a KairosDB runs on the same keyspace, whose row keys the server
// must expect.
const upkeepBeside = "cassandra-upkeep-beside"

// upkeep measures the cost of keeping the index correct, compared with the cost of writing the
// samples, while known series get points at the pace of collectors.
func (r *run) upkeep(ctx context.Context, t target, stage string) error {
	dir, remove, err := r.emptyDir("upkeep", t)
	if err != nil {
		return err
	}
	defer remove()
	s, err := t.start(ctx, dir, usual)
	if err != nil {
		return err
	}
	defer s.account().kill()
	v := s.(*overCassandra)
	if stage == upkeepBeside {
		k, err := startKairosDB(ctx, filepath.Join(dir, "beside"), v.ip)
		if err != nil {
			return err
		}
		defer k.account().kill()
	}
	w := live
	w.steps = r.sized(workload{steps: int(upkeepFor / w.pace)}).steps
	if err := r.warmLive(ctx, s, w); err != nil {
		return err
	}
	r.book.title(stage, w.String())
	before, err := v.statementSeconds(ctx)
	if err != nil {
		return err
	}
	if err := s.send(ctx, w, asLines, r.connections); err != nil {
		return err
	}
	if err := awaitStored(ctx, s, w.points()); err != nil {
		return err
	}
	after, err := v.statementSeconds(ctx)
	if err != nil {
		return err
	}
	if err := verify(ctx, s, w); err != nil {
		return err
	}
	var samples, others float64
	for statement, seconds := range after {
		spent := seconds - before[statement]
		if statement == "insert_sample" {
			samples += spent
			continue
		}
		others += spent
		if spent > 1 {
			fmt.Fprintf(os.Stderr, "%s: %s %.1f s\n", stage, statement, spent)
		}
	}
	r.book.add(stage, figure{"time of all other statements, of that of samples", "%"}, t.name(), 0, 100*others/samples)
	return nil
}

// statementSeconds is how long the server has waited for each kind of statement.
func (v *varve) statementSeconds(ctx context.Context) (map[string]float64, error) {
	text, err := httpGet(ctx, "http://"+v.http+"/internal/metrics")
	if err != nil {
		return nil, err
	}
	seconds := make(map[string]float64)
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), `varve_cql_attempt_seconds_sum{`)
		if !ok {
			continue
		}
		_, rest, _ = strings.Cut(rest, `statement="`)
		statement, rest, _ := strings.Cut(rest, `"} `)
		if seconds[statement], err = strconv.ParseFloat(rest, 64); err != nil {
			return nil, err
		}
	}
	if len(seconds) == 0 {
		return nil, fmt.Errorf("server has no metric varve_cql_attempt_seconds")
	}
	return seconds, nil
}
