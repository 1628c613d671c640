package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"varve/internal/work"
)

// cityCount is the number of series of the metric that selective queries read.
// Each series has a row key in each of cityRows rows of KairosDB's layout.
const cityCount, cityRows = 300_000, 3

// rowMS is the width of a row of KairosDB's layout.
const rowMS = 1_814_400_000

const cityMetric = "many.cities"

// overCassandra runs Varve over Cassandra and KairosDB, each on a node of its
// own, with the writes and queries of KairosDB's users.
func (r *run) overCassandra(ctx context.Context, parts []string) {
	var targets []target
	for _, t := range r.targets {
		if t.name() == (clusterTarget{}).name() || t == (kairosTarget{}) {
			targets = append(targets, t)
		}
	}
	if len(targets) == 0 || targets[0].name() != (clusterTarget{}).name() {
		r.book.fail("cassandra", clusterTarget{}.name(), errors.New("-peers does not name it, or Java is missing"))
		return
	}
	dirs := make(map[string]string)
	for _, t := range targets {
		if err := r.ingestCassandra(ctx, t, parts, dirs); err != nil {
			r.book.fail("cassandra-ingest", t.name(), err)
		}
	}
	if slices.Contains(parts, "cassandra-queries") {
		r.askOfCassandra(ctx, targets, dirs)
	}
	if slices.Contains(parts, "cassandra-cities") {
		for _, t := range targets {
			if err := r.cities(ctx, t); err != nil {
				r.book.fail("cities", t.name(), err)
			}
		}
	}
	if slices.Contains(parts, "cassandra-deletes") {
		if err := r.deletes(ctx, targets[0]); err != nil {
			r.book.fail("delete", targets[0].name(), err)
		}
	}
	for _, part := range upkeepParts {
		if !slices.Contains(parts, part) {
			continue
		}
		if err := r.upkeep(ctx, targets[0], part); err != nil {
			r.book.fail(part, targets[0].name(), err)
		}
	}
}

// inRow is w in another row of KairosDB's layout, with row keys of its own.
func (w workload) inRow(n int) workload {
	w.startMS += int64(n) * rowMS
	return w
}

// ingestCassandra sends one workload after the other to one server, each into rows
// of its own. The first points are not measured: just after its start, a Java
// process uses several times as much CPU as later.
func (r *run) ingestCassandra(ctx context.Context, t target, parts []string, dirs map[string]string) error {
	ingests, lives := slices.Contains(parts, "cassandra-ingest"), slices.Contains(parts, "cassandra-live")
	if !ingests && !lives {
		return nil
	}
	dir, _, err := r.emptyDir("cassandra", t)
	if err != nil {
		return err
	}
	s, err := t.start(ctx, dir, usual)
	if err != nil {
		return err
	}
	stage := func(name string, round int, w workload, as form) {
		if err == nil {
			r.book.title(name, w.String())
			err = r.sendTo(ctx, s, name, round, t, w, as)
			fmt.Fprintf(os.Stderr, "%s, round %d: %s done\n", name, round+1, t.name())
		}
	}
	if err == nil {
		err = r.warmIngest(ctx, t, s)
	}
	for round := 0; ingests && round < r.rounds; round++ {
		stage("W1s", round, w1s.inRow(2*round), asLines)
		stage("W1s json", round, w1s.inRow(2*round+1), asJSON)
	}
	if lives {
		if err == nil {
			err = r.warmLive(ctx, s, live.inRow(2*r.rounds))
		}
		stage("live", 0, live.inRow(2*r.rounds), asLines)
		if err == nil {
			err = r.rest(ctx, s, "live", t)
		}
	}
	if err != nil {
		s.account().kill()
		return err
	}
	dirs[t.name()] = dir
	return s.account().stop()
}

// warmIngest sends points that are not measured, at least twice, into earlier rows
// that no stage uses.
func (r *run) warmIngest(ctx context.Context, t target, s server) error {
	for began, n := time.Now(), 1; n <= 2 || time.Since(began) < r.warm; n++ {
		if err := r.sendAll(ctx, s, w1s.inRow(-n), asLines); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "%s is warm\n", t.name())
	return s.settle(ctx)
}

// warmLive sends points of the series of w that are not measured: live traffic has
// only known series. It sends a minute of each series at once, as Varve passes
// points on.
func (r *run) warmLive(ctx context.Context, s server, w workload) error {
	w.steps, w.pace = int(time.Minute.Milliseconds()/w.stepMS), 0
	for began, n := time.Now(), 1; n == 1 || time.Since(began) < r.warm; n++ {
		w.startMS += hourMS
		if err := r.sendAll(ctx, s, w, asLines); err != nil {
			return err
		}
	}
	return s.settle(ctx)
}

// rest records what an idle server costs.
func (r *run) rest(ctx context.Context, s server, stage string, t target) error {
	const rest = 20 * time.Second
	before, err := s.account().usage()
	if err != nil {
		return err
	}
	if err := work.Pause(ctx, rest); err != nil {
		return err
	}
	after, err := s.account().usage()
	r.book.add(stage, figureIdle, t.name(), 0, (after.cpu-before.cpu)/rest.Seconds())
	return err
}

// askOfCassandra asks twice: once with all points read from Cassandra, as in
// KairosDB, and once with a cache of points that were read before.
func (r *run) askOfCassandra(ctx context.Context, targets []target, dirs map[string]string) {
	for _, t := range targets {
		if err := r.loadIfMissing(ctx, t, w1s, dirs); err != nil {
			r.book.fail("queries", t.name(), err)
		}
	}
	if err := r.ask(ctx, w1s, targets, dirs, uncached, " cold"); err != nil {
		r.book.fail("queries", "cold", err)
	}
	if err := r.ask(ctx, w1s, targets[:1], dirs, usual, " again"); err != nil {
		r.book.fail("queries", "again", err)
	}
}

// cities asks for single cities of a metric with very many of them.
func (r *run) cities(ctx context.Context, t target) error {
	began := time.Now()
	s, end, err := r.startWithCities(ctx, "cities", t, roomy)
	if err != nil {
		return err
	}
	defer end()
	v := varveOf(s)
	if err := v.awaitCity(ctx, cityCount-1); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "cities: %s started and loaded in %v\n", t.name(), time.Since(began).Round(time.Second))
	if err := s.settle(ctx); err != nil {
		return err
	}
	for began, turn := time.Now(), cityCount/2; time.Since(began) < r.warm; turn++ {
		if err := v.askCity(ctx, turn*7919%cityCount, cityRows, 1); err != nil {
			return err
		}
	}
	for _, q := range []struct {
		name          string
		rows, entries int
	}{{"one row", 1, 1}, {"three rows", cityRows, 1}, {"two entries", cityRows, 2}} {
		if err := r.timeCities(ctx, v, q.name, t, q.rows, q.entries); err != nil {
			return err
		}
	}
	if o, ok := s.(*overCassandra); ok {
		return r.citiesOnTheirWay(ctx, o, t)
	}
	return nil
}

// citiesOnTheirWay asks for one row while a point of each series in each row waits in the spool, and again
// when all are in Cassandra.
func (r *run) citiesOnTheirWay(ctx context.Context, o *overCassandra, t target) error {
	if err := o.sendCities(ctx); err != nil {
		return err
	}
	if err := r.timeCities(ctx, o.varve, "one row, waiting", t, 1, 1); err != nil {
		return err
	}
	waiting, err := o.metric(ctx, `varve_spool_samples{cluster="write_cluster"}`)
	if err != nil {
		return err
	}
	if waiting < cityCount*cityRows {
		return fmt.Errorf("of %d points sent, only %.0f still waited when all questions were answered", cityCount*cityRows, waiting)
	}
	if err := o.flush(ctx); err != nil {
		return err
	}
	if err := o.settle(ctx); err != nil {
		return err
	}
	return r.timeCities(ctx, o.varve, "one row, drained", t, 1, 1)
}

// timeCities asks for one city after the other.
func (r *run) timeCities(ctx context.Context, v *varve, stage string, t target, rows, entries int) error {
	r.book.title(stage, fmt.Sprintf("one of %d series, %d rows, named by %d metrics of the request", cityCount, rows, entries))
	var millis []float64
	for turn, spent := 0, time.Duration(0); turn < r.turns && spent < askMost; turn++ {
		began := time.Now()
		if err := v.askCity(ctx, turn*7919%cityCount, rows, entries); err != nil {
			return err
		}
		spent += time.Since(began)
		millis = append(millis, millisSince(began))
	}
	r.book.add(stage, figureP50, t.name(), 0, median(millis))
	r.book.add(stage, figureP99, t.name(), 0, quantile(millis, 0.99))
	return nil
}

// startWithCities starts a server for a part of the benchmark, in a directory of its own, and
// sends it all cities. end removes both.
func (r *run) startWithCities(ctx context.Context, part string, t target, how mode) (s server, end func(), err error) {
	dir, remove, err := r.emptyDir(part, t)
	if err != nil {
		return nil, nil, err
	}
	if s, err = t.start(ctx, dir, how); err != nil {
		remove()
		return nil, nil, err
	}
	end = func() {
		s.account().kill()
		remove()
	}
	if err = varveOf(s).sendCities(ctx); err == nil {
		err = s.flush(ctx)
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	return s, end, nil
}

// varveOf returns the part of a server that speaks KairosDB's protocol.
func varveOf(s server) *varve {
	if k, ok := s.(*kairosDB); ok {
		return k.varve
	}
	return s.(*overCassandra).varve
}

// sendCities sends a point of each city in each row.
func (v *varve) sendCities(ctx context.Context) error {
	out := body{url: "http://" + v.http + "/api/v1/datapoints", max: bodyEntries}
	for i := range cityCount {
		out.next()
		fmt.Fprintf(&out.text, `{"name":%q,"tags":{"city":"city-%06d"},"datapoints":[`, cityMetric, i)
		for row := range cityRows {
			fmt.Fprintf(&out.text, "%s[%d,%d]", ","[:min(row, 1)], fullHourMS+int64(row)*rowMS, i)
		}
		out.text.WriteString("]}")
		if err := out.post(ctx, i == cityCount-1); err != nil {
			return err
		}
	}
	return nil
}

// awaitCity waits until a city is visible in all rows.
func (v *varve) awaitCity(ctx context.Context, city int) error {
	var err error
	for began := time.Now(); time.Since(began) < 5*time.Minute; {
		if err = v.askCity(ctx, city, cityRows, 1); err == nil || ctx.Err() != nil {
			return err
		}
		if err := work.Pause(ctx, time.Second); err != nil {
			return err
		}
	}
	return err
}

// askCity asks for the points of a city in the first rows, and checks that they
// exist.
func (v *varve) askCity(ctx context.Context, city, rows, entries int) error {
	metric := object{"name": cityMetric, "tags": object{"city": []string{fmt.Sprintf("city-%06d", city)}}}
	metrics := make([]object, entries)
	for i := range metrics {
		metrics[i] = metric
	}
	text, err := v.query(fullHourMS, fullHourMS+int64(rows-1)*rowMS+1, metrics...).do(ctx)
	if err != nil {
		return err
	}
	a, err := v.read(question{host: allHosts}, text)
	if err == nil && a.size() != rows*entries {
		err = fmt.Errorf("city %d has %d points in %d rows of %d entries", city, a.size(), rows, entries)
	}
	return err
}
