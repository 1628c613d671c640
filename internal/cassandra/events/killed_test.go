package events

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
	"varve/internal/timeline"
)

// killedVariable tells the test binary to be the process that is killed, and where.
const killedVariable = "VARVE_TEST_TIMELINE_KILLED"

const (
	behindMark = "behind the mark"
	behindPut  = "behind the event"
)

// A stopping shelf says where it is, and goes no farther.
type stopping struct {
	timeline.Shelf
	at string
}

func (s *stopping) Put(ctx context.Context, entries []timeline.Placed) error {
	if s.at == behindPut {
		if err := s.Shelf.Put(ctx, entries); err != nil {
			return err
		}
	}
	fmt.Println(s.at)
	bufio.NewReader(os.Stdin).ReadString('\n')
	return errors.New("not killed")
}

// killed appends an event that is acknowledged, an hour before all others, and one that is
// not, an hour before that.
func killed(shelf *Shelf, at, name string) {
	open := func(s timeline.Shelf) *timeline.Engine {
		e, err := timeline.Open(s, timeline.Options{Upkeep: -1})
		cqltest.TwinMust(err)
		return e
	}
	hours := time.Duration(2)
	if at == behindPut {
		hours = 4
	}
	before := time.Now().Add(-hours * time.Hour)
	r, err := open(shelf).Append(context.Background(), []timeline.Addressed{event(before.UnixMicro(), "acknowledged "+at, "", name)})
	cqltest.TwinMust(err)
	fmt.Println(r.Accepted)
	_, err = open(&stopping{shelf, at}).Append(context.Background(), []timeline.Addressed{event(before.Add(-time.Hour).UnixMicro(), "unsure "+at, "", name)})
	cqltest.TwinMust(err)
}

// A writer that is killed between mark and event, or between event and acknowledgement, makes
// no reader miss what was acknowledged, by it or by others, and leaves a start from which all
// is found: acceptance test 2.
func TestKilledWriter(t *testing.T) {
	if !*long {
		t.Skip("needs -cassandra.long: make test-contract")
	}
	address := originals.Cassandra(t)
	session := keyspace(t, address)
	shelf := openShelf(t, session, Options{Node: "other"})
	e := openEngine(t, shelf, nil)
	name := t.Name()
	if _, err := e.Propose(t.Context(), name, timeline.Proposal{Size: 60 * second, Factor: 3}); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	appendAll(t, e, event(now.UnixMicro(), "other", "", name))
	for _, at := range []string{behindMark, behindPut} {
		twin := cqltest.StartTwin(t, address, session.KeyspaceName(), timelineVariable+"="+name, killedVariable+"="+at)
		for _, want := range []string{"1", at} {
			if line, _ := twin.Out.ReadString('\n'); line != want+"\n" {
				t.Fatalf("the process says %q, want %q", line, want)
			}
		}
		if err := twin.Command.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	var ids []string
	q := timeline.Query{Timelines: []string{name}, Limit: 1}
	for n := 0; ; n++ {
		p, err := e.Read(t.Context(), q)
		if err != nil || n > 10 {
			t.Fatalf("page %d: %v", n, err)
		}
		for _, f := range p.Events {
			ids = append(ids, f.ID)
		}
		if p.End {
			break
		}
		q.Cursor = p.Cursor
	}
	want := []string{"other", "acknowledged " + behindMark, "acknowledged " + behindPut, "unsure " + behindPut}
	if fmt.Sprint(ids) != fmt.Sprint(want) {
		t.Errorf("events %q, want %q", ids, want)
	}
	marks, err := shelf.Marks(t.Context(), name, timeline.MinTime, timeline.MaxTime, timeline.Ascending, 10)
	if err != nil || len(marks) != 5 { // one of them has no event
		t.Errorf("%d marks, %v", len(marks), err)
	}
	if start, err := e.Start(t.Context(), name); err != nil || start.First.ID != "unsure "+behindPut || start.Bucket > start.First.Time {
		t.Errorf("start %+v, %v", start, err)
	}
	// Its client sends it again.
	appendAll(t, e, event(now.Add(-3*time.Hour).UnixMicro(), "unsure "+behindMark, "", name))
	if p, err := e.Read(t.Context(), timeline.Query{Timelines: []string{name}}); err != nil || len(p.Events) != 5 || !p.End {
		t.Errorf("%d events, end %v, %v", len(p.Events), p.End, err)
	}
}
