package local

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/embedded/catalogue"
	"varve/internal/timeline"
)

var update = flag.Bool("update", false, "rewrite testdata")

// TestFormat pins the bytes of every kind of row; docs/formats/timelines.md explains them.
func TestFormat(t *testing.T) {
	s := open(t, vfs.NewMem(), Options{})
	ctx := t.Context()
	h := timeline.History{Version: 1, Retention: time.Hour, Layouts: []timeline.Layout{
		{From: timeline.Beginning, Size: 10_000_000, Factor: 1, Mode: timeline.Materialised, Placement: timeline.Hash},
		{From: 100_000_000, Size: 60_000_000, Factor: 3, Mode: timeline.Hybrid, Threshold: 100, Placement: timeline.RoundRobin},
	}}
	key := timeline.PayloadKey([]byte("0123456789abcdef"))
	part := timeline.Part{Timeline: "deploys", Start: 0, EndExcl: 10_000_000, Partition: 2}
	for _, err := range []error{
		s.SetHistory(ctx, "deploys", 0, h),
		s.SetHistory(ctx, "ä", 0, h),
		s.Mark(ctx, "deploys", []int64{-10_000_000, 0}, time.UnixMicro(1_700_000_000_000_000)),
		s.db.Set(referenceKey(key, 1), nil, nil),
		setOpening(s.db, opening{1, 0x01020304}), // which is drawn
		s.Put(ctx, []timeline.Placed{
			{Part: part, Entry: timeline.Entry{Event: timeline.Event{Time: -1, ID: "a", Type: "web", Data: []byte("{}")}}},
			{Part: part, Entry: timeline.Entry{Event: timeline.Event{Time: 1, ID: "a"}}},
			{Part: part, Entry: timeline.Entry{Event: timeline.Event{Time: 1, ID: "ab"}, Pointer: key, Size: 300}, Payload: []byte("large")},
		}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	got := dump(t, s.db)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("testdata/rows.txt", got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/rows.txt")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the rows are\n%s\nwant\n%s, %v", got, want, err)
	}
}

func setOpening(db *catalogue.Pebble, o opening) error {
	b := db.NewBatch()
	return errors.Join(setMeta(b, openingName(o.generation), o.id), b.Commit(nil))
}

func dump(t *testing.T, db *catalogue.Pebble) []byte {
	var out bytes.Buffer
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		fmt.Fprintf(&out, "%c %x\n    %x\n", it.Key()[0], it.Key()[1:], it.Value())
	}
	return out.Bytes()
}

// TestKeyOrder: keys are in the reverse order of positions, and bounds fall between them.
func TestKeyOrder(t *testing.T) {
	var all []timeline.Position
	for _, at := range []int64{timeline.MinTime, -256, -1, 0, 1, 255, 256, timeline.MaxTime} {
		for _, id := range []string{"!", "a", "a!", "aa", "b", "é", "\U0010ffff"} {
			all = append(all, timeline.Position{Time: at, ID: id})
		}
	}
	if !slices.IsSortedFunc(all, timeline.Position.Compare) {
		t.Fatal("the test's positions are not in order")
	}
	for i, p := range all {
		key := eventKey(nil, 7, p)
		if got, ok := parsePosition(key); !ok || got != p {
			t.Errorf("%v was read as %v, %v", p, got, ok)
		}
		if i > 0 && bytes.Compare(key, eventKey(nil, 7, all[i-1])) >= 0 {
			t.Errorf("the key of %v is not before that of %v", p, all[i-1])
		}
		for j, q := range all {
			for _, r := range []timeline.Range{{From: p, To: q}, {From: p.Next(), To: q}, {From: p, To: q.Next()}, {From: timeline.At(p.Time), To: q}} {
				lower, upper := eventBounds(7, r)
				for _, x := range []timeline.Position{p, q, all[(i+j)%len(all)]} {
					k := eventKey(nil, 7, x)
					if in := bytes.Compare(lower, k) <= 0 && bytes.Compare(k, upper) < 0; in != r.Contains(x) {
						t.Fatalf("%v in %v: %v by its key", x, r, in)
					}
				}
			}
		}
	}
}

func FuzzRows(f *testing.F) {
	p := timeline.Position{Time: -5, ID: "é"}
	f.Add(appendEntry(nil, &timeline.Placed{Entry: timeline.Entry{Event: timeline.Event{Type: "t", Data: []byte("x")}}}), eventKey(nil, 3, p))
	f.Add(appendPositions(nil, []timeline.Position{p, {Time: 9, ID: "b"}}), []byte{})
	f.Fuzz(func(t *testing.T, value, key []byte) {
		if q, ok := parsePosition(key); ok && key[0] == tableEvent {
			n := number(key[1])<<24 | number(key[2])<<16 | number(key[3])<<8 | number(key[4])
			if got := eventKey(nil, n, q); !bytes.Equal(got, key) {
				t.Errorf("key %x was read as %v, which is written %x", key, q, got)
			}
		}
		if e, part, err := parseEntry(p, value); err == nil {
			again := appendEntry(nil, &timeline.Placed{Part: timeline.Part{Partition: part}, Entry: e})
			if f, partAgain, err := parseEntry(p, again); err != nil || partAgain != part || f.Type != e.Type || !bytes.Equal(f.Data, e.Data) || f.Pointer != e.Pointer || f.Size != e.Size {
				t.Errorf("value %x was read as %+v, then as %+v, %v", value, e, f, err)
			}
		}
		if all, err := parsePositions(value); err == nil {
			if got, err := parsePositions(appendPositions(nil, all)); err != nil || !slices.Equal(got, all) {
				t.Errorf("row %x was read as %v, then as %v, %v", value, all, got, err)
			}
		}
		parseHistory(value)
	})
}

// TestNewerFormat: the timelines of a newer build are refused.
func TestNewerFormat(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs, Options{})
	b := s.db.NewBatch()
	if err := errors.Join(setMeta(b, "format", Version+1), b.Commit(pebble.Sync), b.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(fs, "timelines", Options{}); err == nil || !strings.Contains(err.Error(), "use a newer build") {
		t.Errorf("got error %v", err)
	}
}
