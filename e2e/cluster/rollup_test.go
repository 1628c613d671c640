package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"varve/e2e/process"
)

const minuteMS = 60_000

// rollUp creates a task that counts the points of the first series of a ledger by minute:
// into .rolled with the time of the minute, and into .first with the time of its first
// point.
func rollUp(t *testing.T, v *process.Server, l *ledger) {
	t.Helper()
	part := func(name string, aligned bool) string {
		return fmt.Sprintf(`{"save_as":"%s.%s","query":{"start_relative":{"value":6,"unit":"hours"},"metrics":[%s]}}`, l.metric, name, countByMinute(l.metric, aligned))
	}
	_, err := v.Want(t.Context(), http.StatusOK, "POST", "/api/v1/rollups", fmt.Sprintf(
		`{"id":"count","name":"count","execution_interval":{"value":1,"unit":"SECONDS"},"rollups":[%s,%s]}`, part("rolled", true), part("first", false)))
	if err != nil {
		t.Fatal(err)
	}
}

func countByMinute(metric string, aligned bool) string {
	return fmt.Sprintf(`{"name":%q,"tags":{"series":["0"]},"group_by":[{"name":"tag","tags":["series"]}],
		"aggregators":[{"name":"count","sampling":{"value":1,"unit":"minutes"},"align_start_time":%v}]}`, metric, aligned)
}

// whole returns the range of the minutes of a ledger whose points were all
// sent.
func whole(l *ledger) (startMS, endMS int64) {
	return l.firstMS / minuteMS * minuteMS, l.timeMS(l.all().to) / minuteMS * minuteMS
}

// countsOf returns the values of a metric, as text, and their number.
func countsOf(t *testing.T, v *process.Server, l *ledger, metric string) (string, int) {
	t.Helper()
	startMS, endMS := whole(l)
	results, err := v.Query(t.Context(), fmt.Sprintf(`{"start_absolute":%d,"end_absolute":%d,"metrics":[%s]}`, startMS, endMS-1, metric))
	if err != nil || len(results) != 1 {
		return fmt.Sprint(err, len(results)), 0
	}
	text, err := json.Marshal(results[0].Values)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), " ", ""), len(results[0].Values)
}

// notRolledUp returns an error until the results of the task match the points.
func notRolledUp(t *testing.T, v *process.Server, l *ledger) error {
	t.Helper()
	for name, aligned := range map[string]bool{"rolled": true, "first": false} {
		want, _ := countsOf(t, v, l, countByMinute(l.metric, aligned))
		if got, _ := countsOf(t, v, l, fmt.Sprintf(`{"name":"%s.%s"}`, l.metric, name)); got != want {
			return fmt.Errorf("%s: the results are %s, want %s", name, got, want)
		}
	}
	return nil
}

// rolledUp waits until the results of the task match the points.
func rolledUp(t *testing.T, v *process.Server, l *ledger) {
	t.Helper()
	want, minutes := countsOf(t, v, l, countByMinute(l.metric, true))
	if minutes < 5 {
		t.Fatalf("%d whole minutes: %s", minutes, want)
	}
	await(t, time.Minute, "all points rolled up", func() error { return notRolledUp(t, v, l) })
	t.Logf("%d minutes rolled up", minutes)
}

// staleRollUps: queries read at ONE, and a replica lacks the points that were written
// while it was down. The results of a roll-up must include them, because no later run
// would.
func (p *place) staleRollUps(t *testing.T) {
	a, b := p.start(t, t.TempDir()), p.start(t, t.TempDir())
	connected(t, a)
	connected(t, b)
	l := p.ledger("counted")
	rollUp(t, a, l)
	for i, n := range p.nodes.Nodes {
		n.Kill()
		for l.all().to < (i+1)*5*eraPoints {
			if err := l.post(t.Context(), b, l.next(eraPoints)); err != nil {
				t.Fatal(err)
			}
		}
		handedOver(t, a, b)
		n.Start()
		await(t, time.Minute, "all nodes are up for all", func() error { return up(t, []*process.Server{a, b}, len(p.nodes.Nodes)) })
	}
	startMS, endMS := whole(l)
	form := func(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02-15-04-05") + "-000" }
	_, err := a.Want(t.Context(), http.StatusNoContent, "POST", fmt.Sprintf("/api/v1/rollups/backfill/count?startTime=%s&endTime=%s", form(startMS), form(endMS)), "")
	if err != nil {
		t.Fatal(err)
	}
	handedOver(t, a)
	reader := p.start(t, t.TempDir(), "--cassandra-read-consistency=QUORUM")
	connected(t, reader)
	rolledUp(t, reader, l)
}

// rollUps: two servers whose clocks differ by twice the skew, and jump, write points of one
// task, all of them late, and delete points and results. The server that runs the task
// is killed, and restarts when the other one has taken the task over.
func (p *place) rollUps(t *testing.T, seed uint64, early, late *process.Clock) {
	early.Set(t, skew)
	late.Set(t, -skew)
	flags := p.flags("--tune=rollups.retry_interval=1s", "--rollups-late-horizon=10m")
	dir := t.TempDir()
	a, b := early.Start(t, dir, flags...), late.Start(t, t.TempDir(), flags...)
	connected(t, a)
	connected(t, b)
	l := p.ledger("counted")
	rollUp(t, a, l)
	x := startPaced(t, a, l, seed, 1, 0, slow)
	y := startPaced(t, b, l, seed+1, 1, 0, slow)
	more := func() {
		t.Helper()
		from := l.all().to
		await(t, time.Minute, "points", func() error { return written(l, from+20*blockMax) })
	}
	more()
	x.end()
	y.end()
	rolledUp(t, a, l)
	p.eraseRolled(t, a, l, 4)
	if err := notRolledUp(t, b, l); err != nil {
		t.Errorf("after a delete of points and results: %v", err)
	}

	y = startPaced(t, b, l, seed+2, 1, 0, slow)
	x = startPaced(t, a, l, seed+3, 1, 0, slow)
	more()
	x.end()
	a.Kill()
	more()
	early.Set(t, -skew)
	late.Set(t, skew)
	more()
	a = early.Start(t, dir, flags...)
	connected(t, a)
	x = startPaced(t, a, l, seed+4, 1, 0, slow)
	more()
	x.end()
	y.end()
	await(t, 5*time.Minute, "the task is run by a server", func() error { return notRolledUp(t, b, l) })
	rolledUp(t, a, l)
	p.verify(t, []*ledger{l}, a, b)
}

// eraseRolled deletes the points of the first minutes of a ledger and then their results,
// by the server that runs the task.
func (p *place) eraseRolled(t *testing.T, v *process.Server, l *ledger, minutes int) {
	t.Helper()
	startMS, _ := whole(l)
	endMS := startMS + int64(minutes)*minuteMS
	if err := l.erase(t.Context(), v, span{0, int(endMS-l.firstMS) / stepMS * l.series}); err != nil {
		t.Fatal(err)
	}
	runs := func() float64 {
		m, err := v.Metrics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return m[`varve_rollup_runs_total{outcome="ok"}`]
	}
	before := runs()
	await(t, time.Minute, "a run that began after the delete has ended", func() error {
		if n := runs() - before; n < 2 {
			return fmt.Errorf("%v runs have ended", n)
		}
		return nil
	})
	_, err := v.Want(t.Context(), http.StatusNoContent, "POST", "/api/v1/datapoints/delete",
		fmt.Sprintf(`{"start_absolute":%d,"end_absolute":%d,"metrics":[{"name":"%[3]s.rolled"},{"name":"%[3]s.first"}]}`, startMS, endMS-1, l.metric))
	if err != nil {
		t.Fatal(err)
	}
}
