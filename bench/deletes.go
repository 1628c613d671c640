package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"
)

// drainAlone is how long draining is measured before the delete begins, and again after it, when the
// node has files to compact.
const drainAlone = 2 * time.Minute

// deletes measures how long points of other metrics take to reach Cassandra while the
// rows of a metric with very many series are deleted.
func (r *run) deletes(ctx context.Context, t target) error {
	s, end, err := r.startWithCities(ctx, "deletes", t, usual)
	if err != nil {
		return err
	}
	defer end()
	v := s.(*overCassandra)
	if err := v.settle(ctx); err != nil {
		return err
	}
	for end := time.Now().Add(r.warm); time.Now().Before(end); {
		if _, err := v.drain(ctx); err != nil {
			return err
		}
	}
	const rows = cityRows - 1 // of each series; one stays
	stage := "delete"
	r.book.title(stage, fmt.Sprintf("100 points written and drained at a time, alone, while %d rows of another metric are deleted, and after that", rows*cityCount))
	alone, aloneRSS, err := v.drainUntil(ctx, time.After(drainAlone))
	if err != nil {
		return err
	}
	began, deleted := time.Now(), make(chan error, 1)
	done := make(chan time.Time)
	go func() {
		_, err := v.post("/api/v1/datapoints/delete", object{
			"start_absolute": fullHourMS, "end_absolute": fullHourMS + rows*rowMS - 1, "metrics": []object{{"name": cityMetric}},
		}).do(ctx)
		deleted <- err
		close(done)
	}()
	beside, besideRSS, err := v.drainUntil(ctx, done)
	if err != nil {
		return err
	}
	if err := <-deleted; err != nil {
		return err
	}
	took := time.Since(began)
	after, afterRSS, err := v.drainUntil(ctx, time.After(drainAlone))
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "deletes: done after %v, %d turns beside it\n", took.Round(time.Second), len(beside))
	for _, f := range []struct {
		name   string
		millis []float64
		rss    int64
	}{{"alone", alone, aloneRSS}, {"beside", beside, besideRSS}, {"after", after, afterRSS}} {
		r.book.add(stage, figure{"drained " + f.name + ", p50", "ms"}, t.name(), 0, median(f.millis))
		r.book.add(stage, figure{"drained " + f.name + ", p99", "ms"}, t.name(), 0, quantile(f.millis, 0.99))
		r.book.add(stage, figure{"RSS of the server, " + f.name, "MB"}, t.name(), 0, float64(f.rss)/1e6)
	}
	r.book.add(stage, figure{"rows deleted", "1/s"}, t.name(), 0, rows*cityCount/took.Seconds())
	return nil
}

// drainUntil measures drain repeatedly, and the peak memory of the server meanwhile.
func (o *overCassandra) drainUntil(ctx context.Context, end <-chan time.Time) (millis []float64, rss int64, err error) {
	for {
		took, err := o.drain(ctx)
		if err != nil {
			return nil, 0, err
		}
		millis = append(millis, took)
		now, err := o.residentBytes()
		if err != nil {
			return nil, 0, err
		}
		rss = max(rss, now)
		select {
		case <-end:
			return millis, rss, nil
		case <-time.After(neighbourPause):
		}
	}
}

// drain writes points and returns how many ms they took to reach Cassandra.
func (o *overCassandra) drain(ctx context.Context) (millis float64, err error) {
	began := time.Now()
	if _, err := httpDo(ctx, http.MethodPost, "http://"+o.http+"/api/v1/datapoints", nil, []byte(points("other", 100, 1, began.UnixMilli()))); err != nil {
		return 0, err
	}
	err = o.flush(ctx)
	return millisSince(began), err
}
