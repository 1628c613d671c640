package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func open(t *testing.T, path string, c Config) *Log {
	t.Helper()
	l, err := Open(path, c, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func lines(t *testing.T, path string) (events []Event) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		events = append(events, e)
	}
	return events
}

// Events of many goroutines, and of a log that was closed and opened again, are whole lines.
func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "below", "audit.log")
	for range 2 {
		l := open(t, path, DefaultConfig())
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				l.Add(Event{Time: time.Unix(int64(i), 0), Sender: "me", Action: "DELETE /x", Body: strings.Repeat("\n\"é", maxText)})
			})
		}
		all.Wait()
		file := l.file
		for range 2 {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := file.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("the file of a closed log was open: %v", err)
		}
	}
	events := lines(t, path)
	if len(events) != 40 || events[0].Sender != "me" || len(events[0].Body) > maxText+3 {
		t.Errorf("%d events, the first with a body of %d bytes", len(events), len(events[0].Body))
	}
	for file, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o750} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm()&^want != 0 || info.Mode().Perm()&0o600 != 0o600 {
			t.Errorf("%s: %v %v", file, info, err)
		}
	}
}

// A sender chooses what its requests hold, and cannot make it six times as long in the file.
func TestLengthOfLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	query := strings.Repeat("&<>", 1000)
	open(t, path, DefaultConfig()).Add(Event{Action: "GET /x", Query: query})
	if info, err := os.Stat(path); err != nil || info.Size() > int64(len(query)+200) {
		t.Errorf("%v %v", info, err)
	}
	if events := lines(t, path); len(events) != 1 || events[0].Query != query {
		t.Errorf("%+v", events)
	}
}

// Full files are put aside, and the oldest are removed.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	l := open(t, path, Config{MaxBytes: 500, MaxFiles: 2})
	for i := range 50 {
		l.Add(Event{Action: fmt.Sprint("event ", i), Detail: strings.Repeat("x", 50)})
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 4 { // with the lock
		t.Errorf("%v %v", files, err)
	}
	last := 50
	for _, name := range []string{path, path + ".1", path + ".2"} {
		events := lines(t, name)
		if info, _ := os.Stat(name); info.Size() > 500 {
			t.Errorf("%s has %d bytes", name, info.Size())
		}
		for i := len(events) - 1; i >= 0; i-- {
			last--
			if want := fmt.Sprint("event ", last); events[i].Action != want {
				t.Errorf("%s has %s, want %s", name, events[i].Action, want)
			}
		}
	}
}

// A file that cannot be written costs its events, which are counted and told, and no more.
func TestFailure(t *testing.T) {
	var nothing *Log
	nothing.Add(Event{})
	if err := nothing.Close(); err != nil {
		t.Error(err)
	}
	dir := t.TempDir()
	if _, err := Open(dir, DefaultConfig(), prometheus.NewRegistry(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "open "+dir+": is a directory") {
		t.Errorf("a directory as a log: %v", err)
	}
	path := filepath.Join(dir, "audit.log")
	l := open(t, path, DefaultConfig())
	var log bytes.Buffer
	l.log = slog.New(slog.NewTextHandler(&log, nil))
	l.file.Close() // as if the disk failed
	l.Add(Event{Action: "lost"})
	l.Add(Event{Action: "kept"})
	if !strings.Contains(log.String(), "lost") || strings.Contains(log.String(), "kept") {
		t.Error(log.String())
	}
	if events := lines(t, path); len(events) != 1 || events[0].Action != "kept" {
		t.Errorf("%+v", events)
	}
}

// A line that was cut off, by a full disk or a crash, costs no event after it.
func TestLineCutOff(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(path, []byte("{\"action\":\"first\"}\n{\"action\":\"cut o"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, path, DefaultConfig()).Add(Event{Action: "next"})
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Split(string(text), "\n")
	if len(all) != 4 || json.Unmarshal([]byte(all[2]), &Event{}) != nil || !strings.Contains(all[2], "next") {
		t.Errorf("%q", all)
	}
}

// A file that was moved or removed while it was open is begun again: events go to the path.
func TestFileMoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, path, DefaultConfig())
	for i, away := range []func() error{
		func() error { return os.Rename(path, path+".old") },
		func() error { return os.Remove(path) },
		func() error {
			return errors.Join(os.Rename(path, path+".older"), os.WriteFile(path, nil, 0o600))
		},
	} {
		l.Add(Event{Action: "before"})
		if err := away(); err != nil {
			t.Fatal(err)
		}
		l.Add(Event{Action: "after"})
		if events := lines(t, path); len(events) != 1 || events[0].Action != "after" {
			t.Errorf("%d: %+v", i, events)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// One sender cannot push out what others did: what it has done lately leaves it no room, and
// others have theirs.
func TestShareOfASender(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	c := Config{MaxBytes: 64 << 10, MaxFiles: 4}
	l := open(t, path, c)
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	l.Add(Event{Time: now, By: "token", Sender: "quiet", Action: "first"})
	do := func(name string) bool {
		if l.RoomIn("token", name, now) > 0 {
			return false
		}
		l.Add(Event{Time: now, By: "token", Sender: name, Action: "DELETE /x", Query: strings.Repeat("x", 1000)})
		return true
	}
	done := 0
	for do("loud") {
		if done++; done > 100 {
			t.Fatal("one sender fills the log")
		}
	}
	if !do("quiet") || do("loud") || done < 10 {
		t.Errorf("%d requests of one sender left no room for another, or too much for itself", done)
	}
	if _, err := os.Stat(path + ".1"); err == nil {
		t.Error("one sender has turned over the log")
	}
	wait := l.RoomIn("token", "loud", now)
	if wait < time.Second || l.RoomIn("token", "loud", now.Add(wait-time.Second)) == 0 || l.RoomIn("token", "loud", now.Add(wait+time.Second)) > 0 || l.RoomIn("token", "quiet", now) != 0 {
		t.Errorf("there should be room in %v, for another sender in %v", wait, l.RoomIn("token", "quiet", now))
	}
	var m dto.Metric
	if err := l.held.Write(&m); err != nil || m.Counter.GetValue() != 4 {
		t.Errorf("%v requests were refused: %v", m.Counter.GetValue(), err)
	}
	now = now.Add(time.Hour) // a twenty-fourth of all files
	for done = 0; do("loud"); done++ {
	}
	if done < 5 || done > 12 {
		t.Errorf("an hour later there is room for %d", done)
	}
	// Whoever chooses the name of a token, as a user of a proxy may, does not use its share.
	if l.RoomIn("token", "loud", now) == 0 || l.RoomIn("proxy", "loud", now) > 0 {
		t.Error("a sender uses the share of another one of its name")
	}
	for i := range 2 * maxSenders {
		do(fmt.Sprint("sender ", i))
	}
	if n := len(l.shares); n > maxSenders+1 {
		t.Errorf("%d senders are told apart", n)
	}
	if (*Log)(nil).RoomIn("token", "x", now) != 0 || l.RoomIn("token", "", now) > 0 {
		t.Error("a sender without a name is limited")
	}
}

// A sender that is told apart stays so while the table of senders is full. One that comes then shares
// with others, until those of the table have their whole share again and are forgotten.
func TestManySenders(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "audit.log"), Config{MaxBytes: 64 << 10, MaxFiles: 4})
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	charge := func(name string, n int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.chargeLocked(sender{"token", name}, n, now)
	}
	for i := range maxSenders {
		charge(fmt.Sprint("sender ", i), 1000)
	}
	for range 2 * 64 / burstShare {
		charge("late", 1000)
	}
	if l.RoomIn("token", "late", now) == 0 || l.RoomIn("token", "later", now) == 0 {
		t.Error("the senders beyond the table have more than one share")
	}
	if l.RoomIn("token", "sender 0", now) > 0 {
		t.Error("a sender of the table has lost its share to those beyond it")
	}
	now = now.Add(turnover)
	if charge("later", 1000); l.shares[sender{"token", "later"}] == nil || len(l.shares) > 2 {
		t.Errorf("a day later %d senders are told apart", len(l.shares))
	}
}

// A machine with many IPv6 addresses is one sender, although a rule for addresses gives each its
// own name.
func TestShareOfANetwork(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, path, Config{MaxBytes: 64 << 10, MaxFiles: 4})
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	addresses := 0
	for sender := netip.MustParseAddr("2001:db8::1"); l.RoomIn("token", sender.String(), now) == 0; sender = sender.Next() {
		l.Add(Event{Time: now, By: "token", Sender: sender.String(), Action: "GET /x", Query: strings.Repeat("x", 1000)})
		if addresses++; addresses > 100 {
			t.Fatal("one network fills the log")
		}
	}
	if l.RoomIn("token", "2001:db8::99", now) == 0 {
		t.Error("another address of the network has room")
	}
	for _, other := range []string{"2001:db8:0:1::1", "192.0.2.1", "someone"} {
		if l.RoomIn("token", other, now) > 0 {
			t.Errorf("%s has no room", other)
		}
	}
}
