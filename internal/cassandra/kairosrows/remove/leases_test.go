package remove

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/write"
	"varve/internal/cassandra/layout"
	"varve/internal/model"
	"varve/internal/store"
)

// resumeAndWait has a node go on with jobs, and waits until it has done what it began.
func (b *cancelBench) resumeAndWait(d *Deleter) {
	b.T.Helper()
	if err := d.Resume(b.Ctx); err != nil {
		b.T.Fatal(err)
	}
	d.jobs.tasks.Wait()
}

// TestJobOfOneNode: a node to whom a job seems to be silent, since clocks differ, does not
// take it while another one works on it.
func TestJobOfOneNode(t *testing.T) {
	b := newCancelBench(t)
	var doneByOther atomic.Int64
	other := b.node("other", 2*jobSilence, func(n int64) { doneByOther.Store(n) })
	worker := b.node("worker", 0, func(n int64) {
		if n == cancelStep+1 {
			b.resumeAndWait(other)
		}
	})
	b.delete(worker, b.del)
	if n := doneByOther.Load(); n > 0 {
		t.Errorf("another node deleted %d rows of a job that is worked on", n)
	}
	if got := b.TableCounts(); got != "0 0 0 0 0 0" {
		t.Errorf("rows of %s: %s", keyspacetest.Tables, got)
	}
}

// TestJobOfLostLease: a node that was stopped for so long that another one has gone on with
// its job stops, and does not write down how far it has come.
func TestJobOfLostLease(t *testing.T) {
	b := newCancelBench(t)
	next := b.node("worker", 0, nil) // the same server as others see it, as when its directory was copied
	var worker *Deleter
	var job layout.Job
	worker = b.node("worker", 0, func(n int64) {
		if n != cancelStep+1 {
			return
		}
		job = b.job(worker)
		if err := next.Resume(b.Ctx); err != nil {
			t.Error(err)
		}
		next.jobs.tasks.Wait()
		worker.jobs.mu.Lock()
		lease := worker.jobs.running[job.ID].lease
		worker.jobs.mu.Unlock()
		for until := time.Now().Add(time.Minute); lease.Check() == nil && time.Now().Before(until); {
			time.Sleep(10 * time.Millisecond)
		}
	})
	worker.jobs.leaseLife = 2 * time.Second
	if err := worker.Delete(b.Ctx, b.Stamp, b.del); !errors.Is(err, errLost) || !errors.As(err, new(*store.UnavailableError)) {
		t.Errorf("who waits is told %v", err)
	}
	worker.jobs.tasks.Wait()
	if _, err := next.jobs.read(b.Ctx, job.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the job is done, and still written down: %v", err)
	}
	if got := b.TableCounts(); got != "0 0 0 0 0 0" {
		t.Errorf("rows of %s: %s", keyspacetest.Tables, got)
	}
}

// TestJobAfterKill: the lease of a process that was killed does not keep its server from
// going on with the job as soon as it is started again, but others, for a while.
func TestJobAfterKill(t *testing.T) {
	b := newCancelBench(t)
	killed := b.node("killed", 0, nil)
	job := &layout.Job{ID: b.Name("killed"), State: layout.JobRunning, StampMS: b.Stamp, Rows: b.rows, StartMS: b.del.Range.StartMS, EndMS: b.del.Range.EndMS,
		NextMS: b.del.Range.StartMS, Node: "killed", Updated: time.Now(), Started: time.Now(), Deletion: layout.SaveDeletion(b.del)}
	if _, err := killed.jobs.lease(b.Ctx, job.ID, false); err != nil { // and is never heard of again
		t.Fatal(err)
	}
	if err := killed.jobs.save(b.Ctx, job); err != nil {
		t.Fatal(err)
	}
	b.resumeAndWait(b.node("other", 2*jobSilence, nil))
	if n := b.Count("data_points"); n != b.rows {
		t.Errorf("%d samples of %d are left while the lease is held", n, b.rows)
	}
	b.resumeAndWait(b.node("killed", 0, nil))
	if got := b.TableCounts(); got != "0 0 0 0 0 0" {
		t.Errorf("rows of %s: %s", keyspacetest.Tables, got)
	}
}

// TestJobOfNodeAhead: the job of a node that is gone and whose clock was hours ahead is gone on
// with at once, and not when its clock's time comes.
func TestJobOfNodeAhead(t *testing.T) {
	b := newCancelBench(t)
	d := b.node("next", 0, nil)
	job := &layout.Job{ID: b.Name("ahead"), State: layout.JobRunning, StampMS: b.Stamp, Rows: b.rows, StartMS: b.del.Range.StartMS, EndMS: b.del.Range.EndMS,
		NextMS: b.del.Range.StartMS, Node: "gone", Updated: time.Now().Add(5 * time.Hour), Started: time.Now(), Deletion: layout.SaveDeletion(b.del)}
	if err := d.jobs.save(b.Ctx, job); err != nil {
		t.Fatal(err)
	}
	if got := b.job(d); got.State != layout.JobWaiting {
		t.Errorf("listed as %+v", got)
	}
	b.resumeAndWait(d)
	if got := b.TableCounts(); got != "0 0 0 0 0 0" {
		t.Errorf("rows of %s: %s", keyspacetest.Tables, got)
	}
}

// TestJobEndedMeanwhile: a job that its node has ended, after it was looked at and before
// its lease was free, does not come back.
func TestJobEndedMeanwhile(t *testing.T) {
	b := newCancelBench(t)
	d := b.node("late", 2*jobSilence, nil)
	job := &layout.Job{ID: b.Name("ended"), State: layout.JobRunning, Node: "gone", Updated: time.Now(), Deletion: layout.SaveDeletion(b.del)}
	if err := d.resume(b.Ctx, job); err != nil {
		t.Error(err)
	}
	d.jobs.tasks.Wait()
	if _, err := d.jobs.read(b.Ctx, job.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("it is written down again: %v", err)
	}
	if lease, err := b.node("next", 0, nil).jobs.lease(b.Ctx, job.ID, false); err != nil {
		t.Errorf("its lease is held: %v", err)
	} else if err := lease.Release(b.Ctx); err != nil {
		t.Error(err)
	}
}

// TestJobWithoutLeases: where the table of leases is missing and may not be made, jobs are
// done as before there were leases.
func TestJobWithoutLeases(t *testing.T) {
	b := newBench(t, keyspacetest.OwnKeyspace(), write.DefaultConfig(), "")
	c := keyspacetest.OwnKeyspace()
	c.Create = schema.CreateNothing
	ks, err := schema.Open(b.Ctx, b.KS.Session, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.KS = ks
	config := noNodes()
	config.JobRows = 1
	d := b.deleter(config, time.Now)
	s := keyspacetest.LongSeries(b.Name("m"), "k", "v")
	b.write(new(keyspacetest.Memory).Longs(s, 0, keyspacetest.SomeTime))
	del := store.Deletion{Metric: s.Metric, Range: model.AllTime}
	b.delete(d, del)
	if got := b.TableCounts(); got != "0 0 0 0 0 0" {
		t.Errorf("rows of %s: %s", keyspacetest.Tables, got)
	}
	if lease, err := d.jobs.lease(context.Background(), "job", false); lease != nil || err != nil {
		t.Errorf("a lease %v, %v", lease, err)
	}
	tables, err := ks.Session.Tables(b.Ctx)
	if _, made := tables["varve_registers"]; made || err != nil {
		t.Errorf("the table was made: %v, %v", made, err)
	}
}
