package remove

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/write"
	"varve/internal/cassandra/layout"
	"varve/internal/model"
	"varve/internal/originals"
	"varve/internal/store"
)

// cancelStep is how many rows are deleted before a job looks whether it was
// cancelled.
const cancelStep = 50

// A cancelBench is a metric with rows at two row times, and nodes that delete
// them in jobs.
type cancelBench struct {
	*bench
	del  store.Deletion
	rows int
}

func newCancelBench(t *testing.T) *cancelBench {
	b := &cancelBench{bench: newBench(t, schema.DefaultConfig(), write.DefaultConfig(), ""), rows: 2 * (cancelStep + 20)}
	metric := b.Name("m")
	src := new(keyspacetest.Memory)
	for i := range b.rows / 2 {
		src.Longs(keyspacetest.LongSeries(metric, "k", fmt.Sprint(i)), 0, keyspacetest.SomeTime, keyspacetest.SomeTime+b.KS.Spec.Width)
	}
	b.write(src)
	var values []string
	for i := range b.rows / 2 {
		values = append(values, fmt.Sprint(i)) // not in order
	}
	b.del = store.Deletion{Metric: metric, Range: model.AllTime, Matchers: []model.Matcher{{Tag: "k", Values: values}}}
	return b
}

// node returns a Deleter of another process. reached is called with how many
// rows it has deleted.
func (b *cancelBench) node(name string, ahead time.Duration, reached func(rows int64)) *Deleter {
	b.T.Helper()
	c := noNodes()
	c.JobRows = 10
	var rows atomic.Int64
	d, err := New(b.KS, b.newWriter(write.DefaultConfig(), time.Now), c, Options{
		Node: name, Now: func() time.Time { return time.Now().Add(ahead) },
		Deleted: func([]byte) {
			if reached != nil {
				reached(rows.Add(1))
			}
		},
	})
	if err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(d.Close)
	d.step = cancelStep
	d.afterCancel = func(ctx context.Context) { <-ctx.Done() } // however slow the node is
	return d
}

// job returns the one job of this test as a node lists it.
func (b *cancelBench) job(d *Deleter) layout.Job {
	b.T.Helper()
	all, err := d.Jobs(b.Ctx)
	all = slices.DeleteFunc(all, func(j layout.Job) bool { return j.Deletion.Metric != b.del.Metric })
	if err != nil || len(all) != 1 {
		b.T.Fatalf("jobs: %+v, %v", all, err)
	}
	return all[0]
}

// wantHalf checks that what was done is done wholly, and the rest is there.
func (b *cancelBench) wantHalf(job layout.Job) {
	b.T.Helper()
	points, keys, tagRows := b.Count("data_points"), b.Count("row_keys"), b.Count("varve_row_index")
	if points == 0 || points == b.rows || keys != points || tagRows != points {
		b.T.Errorf("%d samples of %d are left, %d row keys, %d tag rows", points, b.rows, keys, tagRows)
	}
	if job.State != layout.JobCancelled || job.Done != b.rows-points || !strings.Contains(job.Note, fmt.Sprintf("about %d of %d rows were done", job.Done, b.rows)) {
		b.T.Errorf("%d samples of %d are left, the job says: %+v", points, b.rows, job)
	}
}

// recorded records the deletion, and another one of the same moment. It returns a function that counts
// how often the deletion is recorded.
func (b *cancelBench) recorded(d *Deleter) (count func() int) {
	b.T.Helper()
	b.Stamp = max(b.Stamp+1, time.Now().UnixMilli())
	other := store.DeletionOf(keyspacetest.LongSeries(b.del.Metric, "k", "0"), model.AllTime)
	if err := d.Record(b.Ctx, b.Stamp, b.del, other); err != nil {
		b.T.Fatal(err)
	}
	return func() (n int) {
		others := 0
		err := d.Recorded(b.Ctx, b.Stamp, func(_ int64, del store.Deletion) error {
			switch {
			case del.Metric != b.del.Metric:
			case del.Only == nil:
				n++
			default:
				others++
			}
			return nil
		})
		if err != nil || others != 1 {
			b.T.Errorf("%d records of another deletion, %v", others, err)
		}
		return n
	}
}

// TestCancelHere: the node that works on a job is asked. Who waits for the job is
// told, and nobody goes on with it.
func TestCancelHere(t *testing.T) {
	b := newCancelBench(t)
	asked := make(chan layout.Job, 1)
	var d *Deleter
	d = b.node("one", 0, func(rows int64) {
		if rows == 10 {
			id := b.job(d).ID
			go func() {
				job, err := d.Cancel(b.Ctx, id)
				if err != nil {
					t.Error(err)
				}
				asked <- job
			}()
			for b.job(d).State != layout.JobCancelling {
				time.Sleep(time.Millisecond)
			}
		}
	})
	recorded := b.recorded(d)
	err := d.Delete(b.Ctx, b.Stamp, b.del)
	var input *store.InputError
	if !errors.As(err, &input) || !strings.Contains(err.Error(), "was cancelled") {
		t.Errorf("who waits is told %v", err)
	}
	job := <-asked
	b.wantHalf(job)
	if job.Done != cancelStep {
		t.Errorf("%d rows were done, want %d", job.Done, cancelStep)
	}
	if n := recorded(); n != 0 {
		t.Errorf("%d records tell other nodes to delete what they have yet to write", n)
	}
	again, err := d.Cancel(b.Ctx, job.ID)
	if err != nil || again.State != layout.JobCancelled {
		t.Errorf("a second time: %+v, %v", again, err)
	}
	for _, name := range []string{"one", "two"} {
		restarted := b.node(name, 2*jobSilence, nil)
		if err := restarted.Resume(b.Ctx); err != nil {
			t.Fatal(err)
		}
		restarted.jobs.tasks.Wait()
		b.wantHalf(b.job(restarted))
	}
	// It is forgotten at last.
	later := b.node("two", cancelledKept+time.Hour, nil)
	if err := later.Resume(b.Ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := later.Cancel(b.Ctx, job.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a job of last week: %v", err)
	}
	if cancelled, _, err := later.jobs.written(b.Ctx); err != nil || cancelled[job.ID] {
		t.Errorf("its cancellation is still there: %v", err)
	}
}

// TestCancelElsewhere: another node is asked, while one works on the job.
func TestCancelElsewhere(t *testing.T) {
	b := newCancelBench(t)
	other := b.node("other", 0, nil)
	asked := make(chan layout.Job, 1)
	var worker *Deleter
	worker = b.node("worker", 0, func(rows int64) {
		if rows == 1 {
			id := b.job(other).ID
			go func() {
				job, err := other.Cancel(b.Ctx, id)
				if err != nil {
					t.Error(err)
				}
				asked <- job
			}()
			worker.jobs.mu.Lock()
			r := worker.jobs.running[id]
			worker.jobs.mu.Unlock()
			<-r.cancelled.Done()
		}
	})
	worker.jobs.look = time.Millisecond
	if err := worker.Delete(b.Ctx, b.Stamp, b.del); err == nil || !strings.Contains(err.Error(), "was cancelled") {
		t.Errorf("who waits is told %v", err)
	}
	b.wantHalf(<-asked)
	b.wantHalf(b.job(other))
	b.wantHalf(b.job(worker))
}

// TestCancelOfNobody: the node that worked on the job has ended. It does not go
// on when it is started again, nor does another node take the job over.
func TestCancelOfNobody(t *testing.T) {
	b := newCancelBench(t)
	ctx, cancel := context.WithCancel(b.Ctx)
	var gone *Deleter
	held := make(chan struct{})
	gone = b.node("gone", 0, func(rows int64) {
		if rows == cancelStep+1 {
			cancel()
			<-gone.jobs.ctx.Done() // the process ends
			close(held)
		} else if rows > cancelStep+1 {
			<-held
		}
	})
	if err := gone.Delete(ctx, b.Stamp, b.del); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	id := b.job(gone).ID
	gone.Close()
	other := b.node("other", 0, nil)
	other.jobs.wait = 200 * time.Millisecond
	if job, err := other.Cancel(b.Ctx, id); err != nil || job.State != layout.JobCancelling {
		t.Fatalf("a moment after it has ended: %+v, %v", job, err)
	}
	left := b.Count("data_points")
	for _, name := range []string{"gone", "other"} {
		ahead := time.Duration(0) // its own jobs are taken up at once
		if name == "other" {
			ahead = 2 * jobSilence
		}
		d := b.node(name, ahead, nil)
		if err := d.Resume(b.Ctx); err != nil {
			t.Fatal(err)
		}
		d.jobs.tasks.Wait()
		if job := b.job(d); job.State != layout.JobCancelled {
			t.Errorf("%s lists %+v", name, job)
		}
	}
	if n := b.Count("data_points"); n != left || n == 0 {
		t.Errorf("%d samples were left when it was cancelled, now %d", left, n)
	}
	if _, err := other.Cancel(b.Ctx, "no such job"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an unknown job: %v", err)
	}
}

// TestCancelOfSilent: nobody has worked on the job for a while, so that nobody is
// waited for.
func TestCancelOfSilent(t *testing.T) {
	b := newCancelBench(t)
	later := b.node("later", 2*jobSilence, nil)
	recorded := b.recorded(later)
	job := &layout.Job{ID: fmt.Sprint("silent-", b.Stamp), StampMS: b.Stamp, StartMS: b.del.Range.StartMS, EndMS: b.del.Range.EndMS, State: layout.JobRunning, Rows: 4040, Done: 2000, Node: "lost", Updated: time.Now(), Started: time.Now(), Deletion: layout.SaveDeletion(b.del)}
	if err := later.jobs.save(b.Ctx, job); err != nil {
		t.Fatal(err)
	}
	if got := b.job(later); got.State != layout.JobWaiting {
		t.Errorf("listed as %+v", got)
	}
	if got, err := later.Cancel(b.Ctx, job.ID); err != nil || got.State != layout.JobCancelled {
		t.Errorf("cancelled: %+v, %v", got, err)
	}
	if got, err := later.jobs.read(b.Ctx, job.ID); err != nil || got.State != layout.JobCancelled {
		t.Errorf("written down: %+v, %v", got, err)
	}
	if n := recorded(); n != 0 {
		t.Errorf("%d records tell other nodes to delete what they have yet to write", n)
	}
}

// TestCancelBesideAnOutage: while the record of a delete cannot be withdrawn, its cancellation is answered all
// the same, and the jobs of others that are gone go on.
func TestCancelBesideAnOutage(t *testing.T) {
	node := cqltest.NewFailingNode(t, originals.Cassandra(t))
	b := newCancelBench(t)
	b.Bench = b.NewAt(node.Address, 2)
	b.writer = b.newWriter(write.DefaultConfig(), time.Now)
	d := b.node("later", 2*jobSilence, nil)
	recorded := b.recorded(d)
	save := func(id string, del store.Deletion) {
		t.Helper()
		job := &layout.Job{ID: b.Name(id), StampMS: b.Stamp, StartMS: del.Range.StartMS, EndMS: del.Range.EndMS, NextMS: math.MinInt64, State: layout.JobRunning,
			Node: "lost", Updated: time.Now(), Started: time.Now(), Deletion: layout.SaveDeletion(del)}
		if err := d.jobs.save(b.Ctx, job); err != nil {
			t.Fatal(err)
		}
	}
	save("a", b.del)
	node.Fail(func(r cqltest.Request) *cqltest.Trouble {
		s := r.Statements[0]
		if !strings.HasPrefix(s.Text, "DELETE") || !strings.Contains(s.Text, "service_index") || !strings.HasPrefix(string(s.Values[1]), deletedPrefix) {
			return nil
		}
		return cqltest.Unauthorized
	})
	if got, err := d.Cancel(b.Ctx, b.Name("a")); err != nil || got.State != layout.JobCancelled {
		t.Errorf("cancelled: %+v, %v", got, err)
	}
	save("b", b.del)
	if err := d.Resume(b.Ctx); err == nil {
		t.Error("the record is withdrawn")
	}
	d.jobs.tasks.Wait()
	if n := b.Count("data_points"); n != 0 {
		t.Errorf("%d samples are left: the other job did not go on", n)
	}
	node.Mend()
	if err := d.Resume(b.Ctx); err != nil {
		t.Error(err)
	}
	if n := recorded(); n != 0 {
		t.Errorf("the delete is recorded %d times", n)
	}
}

// TestCancelOfDone: a job that is done cannot be cancelled, and leaves nothing
// behind.
func TestCancelOfDone(t *testing.T) {
	b := newCancelBench(t)
	d := b.node("one", 0, nil)
	recorded := b.recorded(d)
	if err := d.Delete(b.Ctx, b.Stamp, b.del); err != nil {
		t.Fatal(err)
	}
	job := b.job(d)
	if got, err := d.Cancel(b.Ctx, job.ID); err != nil || got.State != layout.JobDone {
		t.Errorf("where it was done: %+v, %v", got, err)
	}
	if _, err := b.node("two", 0, nil).Cancel(b.Ctx, job.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("elsewhere: %v", err)
	}
	if cancelled, _, err := d.jobs.written(b.Ctx); err != nil || cancelled[job.ID] {
		t.Errorf("a cancellation is left: %v, %v", cancelled, err)
	}
	if n := recorded(); n != 1 {
		t.Errorf("%d records of what was deleted", n)
	}
	// One that was written a moment too late is not kept for ever.
	if err := b.KS.Set(b.Ctx, schema.OwnService, cancelServiceKey, "orphan", "one"); err != nil {
		t.Fatal(err)
	}
	for _, ahead := range []time.Duration{0, orphanKept + time.Hour} {
		if _, _, err := b.node("two", ahead, nil).jobs.written(b.Ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := b.KS.Get(b.Ctx, schema.OwnService, cancelServiceKey, "orphan"); (err == nil) != (ahead == 0) {
			t.Errorf("after %v: %v", ahead, err)
		}
	}
}

// A cancelled job ends after the round of rows in progress, without a rest, however many rows are
// left until it would report its progress. The rows that it has emptied are not in the index.
func TestCancelEndsARound(t *testing.T) {
	b := newCancelBench(t)
	rows := 0
	cancelled, cancel := context.WithCancel(b.Ctx)
	d := b.node("one", 0, func(int64) {
		if rows++; rows == 1 {
			cancel()
		}
	})
	d.step = b.rows
	plans, err := d.plan(b.Ctx, []store.Deletion{b.del})
	if err != nil {
		t.Fatal(err)
	}
	resting := restingPace(1)
	resting.rests, resting.worked = 1000, paceRestless
	src := new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(b.Name("other"), "k", "0"), 0, keyspacetest.SomeTime)
	if err := d.writer.WriteSource(b.Ctx, b.Stamp, src); err != nil {
		t.Fatal(err)
	}
	done := 0
	err = d.run(b.Ctx, b.del, b.Stamp, resting, cancelled, plans[0].steps, func(_ int64, n int) error { done += n; return nil })
	if !errors.Is(err, errCancelled) || rows != paceRounds || done != rows {
		t.Errorf("%d rows were deleted, %d of them were reported, want %d: %v", rows, done, paceRounds, err)
	}
	if n := b.Count("row_keys"); n != b.rows+1-rows {
		t.Errorf("%d row keys are left of %d", n, b.rows+1)
	}
	if s := valueOf(t, d.metrics.rested); s != 0 {
		t.Errorf("it has rested for %v s", s)
	}
}

// A cancelled delete whose time is over ends at whichever statement it is removing index rows, even
// if it was cancelled only then. What it leaves is removed when the same delete is requested again.
func TestCancelEndsUnindexing(t *testing.T) {
	for _, late := range []bool{false, true} { // cancelled while it removes index rows
		for at, done := int64(1), false; !done; at += 1 + at/2 {
			b := newCancelBench(t)
			d := b.node("one", 0, nil)
			plans, err := d.plan(b.Ctx, []store.Deletion{b.del})
			if err != nil {
				t.Fatal(err)
			}
			cancelled, cancel := context.WithCancel(b.Ctx)
			over := make(chan struct{})
			working := make(chan context.Context, 10)
			d.afterCancel = func(ctx context.Context) {
				working <- ctx
				select {
				case <-over:
				case <-ctx.Done():
				}
			}
			var sent atomic.Int64
			b.Counts.Before = func(name string) {
				if !strings.HasPrefix(name, "delete_") || name == "delete_row" || sent.Add(1) != at {
					return
				}
				if late {
					cancel()
				}
				ctx := <-working
				close(over)
				<-ctx.Done()
			}
			progress := func(int64, int) error {
				if !late {
					cancel()
				}
				return nil
			}
			err = d.run(b.Ctx, b.del, b.Stamp, newPace(1), cancelled, plans[0].steps, progress)
			b.Counts.Before = nil
			if done = sent.Load() < at; !done && !errors.Is(err, errCancelled) {
				t.Errorf("late %v, statement %d: %v", late, at, err)
			}
			if done && at < 3 {
				t.Errorf("late %v: only %d statements", late, at)
			}
			if n := sent.Load() - at; n > 1 {
				t.Errorf("late %v, statement %d: %d further ones", late, at, n)
			}
			b.delete(b.node("two", 0, nil), b.del)
			if got := b.TableCounts(); got != "0 0 0 0 0 0" {
				t.Errorf("late %v, statement %d: rows of %s: %s", late, at, keyspacetest.Tables, got)
			}
		}
	}
}

// A delete that is cancelled while it removes the last row time is not finished if that takes too
// long: the row time, and so the metric, may still be listed.
func TestCancelEndsTheLastRowTime(t *testing.T) {
	b := newCancelBench(t)
	d := b.node("one", 0, nil)
	plans, err := d.plan(b.Ctx, []store.Deletion{b.del})
	if err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(b.Ctx)
	over := make(chan struct{})
	working := make(chan context.Context, 1)
	d.afterCancel = func(ctx context.Context) {
		working <- ctx
		select {
		case <-over:
		case <-ctx.Done():
		}
	}
	rowTimes := 0
	b.Counts.Before = func(name string) {
		if name != deleteRowTime.Name {
			return
		}
		if rowTimes++; rowTimes == len(plans[0].steps) {
			cancel()
			ctx := <-working
			close(over)
			<-ctx.Done()
		}
	}
	err = d.run(b.Ctx, b.del, b.Stamp, newPace(1), cancelled, plans[0].steps, func(int64, int) error { return nil })
	b.Counts.Before = nil
	if !errors.Is(err, errCancelled) || rowTimes != 2 {
		t.Errorf("%d row times were removed, and the delete ended with %v", rowTimes, err)
	}
	b.delete(b.node("two", 0, nil), b.del)
	if got := b.TableCounts(); got != "0 0 0 0 0 0" {
		t.Errorf("rows of %s: %s", keyspacetest.Tables, got)
	}
}

// The caller of a delete is told when the job is recorded. Jobs beyond jobsAtOnce wait, can be
// cancelled meanwhile, and begin once others have ended.
func TestJobsAtOnce(t *testing.T) {
	b := newCancelBench(t)
	begun, held := make(chan struct{}, 1), make(chan struct{})
	d := b.node("one", 0, func(rows int64) {
		if rows == 1 {
			begun <- struct{}{}
			<-held
		}
	})
	d.jobs.places = make(chan struct{}, 1)
	del := func() (recorded chan struct{}, result chan error) {
		recorded, result = make(chan struct{}), make(chan error, 1)
		go func() {
			result <- d.Delete(store.WithRecorded(b.Ctx, func() { close(recorded) }), b.Stamp, b.del)
		}()
		return recorded, result
	}
	recorded, first := del()
	<-recorded
	<-begun
	id := b.job(d).ID
	recorded, second := del()
	<-recorded
	recorded, third := del()
	<-recorded
	all, err := d.Jobs(b.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancelled := false
	for _, job := range all {
		if job.Deletion.Metric != b.del.Metric || job.ID == id || cancelled {
			continue
		}
		cancelled = true
		if job, err = d.Cancel(b.Ctx, job.ID); err != nil || job.State != layout.JobCancelled || job.Done != 0 {
			t.Errorf("one that waits is cancelled: %+v, %v", job, err)
		}
	}
	var gone *store.InputError
	var other chan error
	select {
	case err = <-second:
		other = third
	case err = <-third:
		other = second
	}
	if !errors.As(err, &gone) {
		t.Errorf("the one that was cancelled: %v", err)
	}
	close(held)
	if err := errors.Join(<-first, <-other); err != nil {
		t.Error(err)
	}
	if n := b.Count("row_keys"); n != 0 {
		t.Errorf("%d row keys are left", n)
	}
}

// Jobs that wait for their turn look for their cancellation as rarely as they report. A thousand may
// wait, and each look is a read of the same partition.
func TestWaitingJobsLookRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var statements atomic.Int64
		d := &Deleter{ks: new(schema.Keyspace), now: time.Now, log: slog.New(slog.DiscardHandler), metrics: newMetrics()}
		d.services = func() (*schema.Keyspace, error) {
			statements.Add(1)
			return nil, errors.New("it is away")
		}
		d.jobs.init(d, "one")
		for range jobsAtOnce {
			d.jobs.places <- struct{}{}
		}
		r := d.jobs.begin(&layout.Job{ID: "1"}, 0, nil, func(context.Context, *runningJob) error { return nil })
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := statements.Load(); n > 2*int64(time.Minute/jobReport) {
			t.Errorf("a job that waits for a minute needs %d statements", n)
		}
		r.cancel()
		<-r.ended
		d.jobs.tasks.Wait()
	})
}
