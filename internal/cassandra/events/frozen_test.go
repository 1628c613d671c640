package events

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
	"varve/internal/store"
	"varve/internal/timeline"
)

// timelineVariable tells the process that is frozen the timeline.
const timelineVariable = "VARVE_TEST_TIMELINE_NAME"

// leadTime is the smallest that there is, so that the test need not wait for long.
const leadTime = time.Second

func hasty(o *timeline.Options) { o.Config.LeadTime = leadTime }

// frozen is a server that appends an event, says so, waits for a line, appends another one,
// and says how many events it then reads.
func frozen(config cql.Config) {
	session, err := cql.Open(config, cql.Options{})
	cqltest.TwinMust(err)
	shelf := Open(session, Options{Node: "frozen"})
	ctx, cancel := context.WithTimeout(context.Background(), cqltest.Patience)
	defer cancel()
	cqltest.TwinMust(shelf.WaitReady(ctx))
	if at := os.Getenv(killedVariable); at != "" {
		killed(shelf, at, os.Getenv(timelineVariable))
	}
	o := timeline.Options{Upkeep: -1}
	hasty(&o)
	e, err := timeline.Open(shelf, o)
	cqltest.TwinMust(err)
	name := os.Getenv(timelineVariable)
	in := bufio.NewReader(os.Stdin)
	for i := range 2 {
		r, err := e.Append(context.Background(), []timeline.Addressed{event(time.Now().UnixMicro(), fmt.Sprint("frozen", i), "", name)})
		cqltest.TwinMust(err)
		p, err := e.Read(context.Background(), timeline.Query{Timelines: []string{name}})
		cqltest.TwinMust(err)
		fmt.Println(r.Accepted, len(p.Events))
		in.ReadString('\n')
	}
	cqltest.TwinMust(e.Close())
	cqltest.TwinMust(shelf.Close())
	session.Close()
}

// A server that is stopped (SIGSTOP) for longer than the lead time, while others change the
// layout, reads all events when it continues, and puts its own where others look for them.
func TestFrozenServer(t *testing.T) {
	if !*long {
		t.Skip("needs -cassandra.long: make test-contract")
	}
	address := originals.Cassandra(t)
	session := keyspace(t, address)
	shelf := openShelf(t, session, Options{Node: "other"})
	e := openEngine(t, shelf, hasty)
	name := t.Name()
	propose(t, e, name, timeline.Proposal{Size: second})
	twin := cqltest.StartTwin(t, address, session.KeyspaceName(), timelineVariable+"="+name)
	said := func(want string) {
		t.Helper()
		if line, _ := twin.Out.ReadString('\n'); line != want+"\n" {
			t.Fatalf("the frozen server says %q, want %q", line, want)
		}
	}
	said("1 1")
	if err := twin.Command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	h := propose(t, e, name, timeline.Proposal{Factor: 5})
	waitFor(time.UnixMicro(h.Layouts[len(h.Layouts)-1].From).Add(2 * leadTime))
	const n = 20 // of five partitions
	for i := range n {
		appendAll(t, e, event(time.Now().UnixMicro(), strconv.Itoa(i), "", name))
	}
	if err := twin.Command.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	io.WriteString(twin.In, "go on\n")
	said(fmt.Sprint(1, " ", n+2))
	io.WriteString(twin.In, "end\n")
	p, err := e.Read(t.Context(), timeline.Query{Timelines: []string{name}})
	if err != nil || len(p.Events) != n+2 || p.Events[0].ID != "frozen1" {
		t.Errorf("%d events, %v", len(p.Events), err)
	}
	if marks, err := shelf.Marks(t.Context(), name, timeline.MinTime, timeline.MaxTime, timeline.Descending, 1); err != nil || len(marks) != 1 {
		t.Errorf("marks %d, %v", marks, err)
	}
}

// propose repeats a proposal that took too long to store for the short lead time of these
// tests, as its error says: the machine may be busy.
func propose(t *testing.T, e *timeline.Engine, name string, p timeline.Proposal) timeline.History {
	t.Helper()
	for tries := 0; ; tries++ {
		h, err := e.Propose(t.Context(), name, p)
		if err == nil {
			return h
		}
		if away := new(store.UnavailableError); !errors.As(err, &away) || tries == 20 {
			t.Fatal(err)
		}
	}
}

func waitFor(at time.Time) {
	<-time.After(time.Until(at))
}
