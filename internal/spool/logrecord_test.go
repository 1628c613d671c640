package spool

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"math"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/store"
	"varve/internal/wal"
)

// TestMarkBytes pins what is on disk.
func TestMarkBytes(t *testing.T) {
	m := mark{number: 1, floorMS: 2, drained: -1, beganMS: 0x0102030405060708, from: 9}
	const want = "01000000000000000200000000000000ffffffffffffffff08070605040302010900000000000000"
	if got := hex.EncodeToString(m.append(nil)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if typeCutV1 != 16 || typeFloorV1 != 17 || typeBatch != 18 || typeCut != 19 || typeFloor != 20 {
		t.Error("types of records have changed")
	}
}

// TestMarksOutOfOrder: a mark by which a generation would end before one that was drained, or
// before it began, is damage: samples would be taken for drained, or drained twice.
func TestMarksOutOfOrder(t *testing.T) {
	for _, test := range []struct {
		typ  byte
		mark mark
		good bool
	}{
		{typeCut, mark{number: 5, floorMS: 6, drained: 4, from: 3}, true},
		{typeCut, mark{number: 5, floorMS: 6, drained: 5, from: 3}, false},
		{typeCut, mark{number: 5, floorMS: 6, drained: 6, from: 3}, false},
		{typeCut, mark{number: 5, floorMS: 6, drained: 4, from: 4}, false}, // a later segment
		{typeCut, mark{number: maxMark, floorMS: 6, drained: 4}, true},
		{typeCut, mark{number: maxMark + 1, floorMS: 6, drained: 4}, false},
		{typeCut, mark{number: 5, floorMS: maxMark + 1, drained: 4}, false},
		{typeCutV1, mark{number: 5, floorMS: 6}, true},
		{typeCutV1, mark{number: 5, floorMS: 5}, false},
		{typeFloorV1, mark{drained: 5, floorMS: 6}, true},
		{typeFloorV1, mark{drained: 5, floorMS: 5}, false},
		{typeFloorV1, mark{}, true},
	} {
		if m, err := parseMark(3, test.typ, test.mark.append(nil)); (err == nil) != test.good {
			t.Errorf("type %d, %+v: %+v, %v", test.typ, test.mark, m, err)
		}
	}
}

func FuzzMark(f *testing.F) {
	f.Add(byte(typeCutV1), mark{number: 5, floorMS: 6, from: 1}.append(nil))
	f.Add(byte(typeFloorV1), mark{floorMS: 6, drained: 5}.append(nil))
	f.Add(byte(typeCut), mark{number: 2, floorMS: 6, drained: 1}.append(nil))
	f.Add(byte(typeFloor), []byte("short"))
	f.Fuzz(func(t *testing.T, typ byte, payload []byte) {
		m, err := parseMark(math.MaxUint64, typ, payload)
		if err == nil && !bytes.Equal(m.append(nil), payload) {
			t.Errorf("%x becomes %+v and %x", payload, m, m.append(nil))
		}
	})
}

// FuzzReplay opens a spool whose log holds arbitrary records. Whatever they are,
// opening ends with an error or with a spool that works.
func FuzzReplay(f *testing.F) {
	series := testSeries("load", 1)
	batch := func(id model.SeriesNumber, key string, samples int64) []byte {
		var b store.Batch
		b.Reset(1)
		var kinds []model.Kind
		for i := range samples {
			b.AddLong(store.Ref(id), i, i, 0)
			kinds = append(kinds, model.Long)
		}
		var define []record.Definition
		if key != "" {
			define = append(define, record.Definition{ID: id, Key: key})
		}
		return record.AppendSamples(record.AppendDefinitions(nil, define), &b, kinds)
	}
	key := string(series.AppendKey(nil))
	cut := mark{number: 10, floorMS: 11, from: 1}.append(nil)
	stamped := func(stampMS int64, batch []byte) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, uint64(stampMS)), batch...)
	}
	f.Add(byte(typeBatch), stamped(9, batch(1, key, 3)), byte(typeCut), cut, byte(typeBatch), stamped(5, batch(1, key, 2)))
	f.Add(byte(typeBatch), stamped(-9, batch(1, key, 3)), byte(record.TypeBatch), batch(1, key, 2), byte(typeBatch), stamped(math.MaxInt64, batch(1, key, 2)))
	f.Add(byte(record.TypeBatch), batch(1, key, 3), byte(typeCutV1), cut, byte(typeBatch), stamped(5, batch(1, key, 2)))
	f.Add(byte(record.TypeBatch), batch(1, key, 3), byte(typeCut), cut, byte(record.TypeBatch), batch(1, key, 2))
	f.Add(byte(record.TypeBatch), batch(1, key, 3), byte(typeCut), cut, byte(record.TypeBatch), batch(7, key, 2)) // another id
	f.Add(byte(record.TypeBatch), batch(1, "", 3), byte(typeCut), cut, byte(typeFloor), mark{number: 51, floorMS: 99, drained: 50, from: 1}.append(nil))
	f.Add(byte(record.TypeBatch), batch(1, key, 3), byte(record.TypeBatch), batch(1, string(testSeries("load", 2).AppendKey(nil)), 3), byte(200), []byte{})
	f.Add(byte(typeFloor), mark{from: 1 << 60}.append(nil), byte(typeCut), cut, byte(record.TypeBatch), batch(1, key, 2))
	f.Add(byte(typeFloor), cut, byte(typeCut), mark{number: 10, floorMS: 11, from: 0xff << 56}.append(nil), byte(record.TypeBatch), batch(1, key, 2)) // a segment that is not there
	f.Fuzz(func(t *testing.T, t1 byte, p1 []byte, t2 byte, p2 []byte, t3 byte, p3 []byte) {
		fs := vfs.NewMem()
		log, err := wal.Open(fs, "spool/log", wal.DefaultConfig(), wal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []struct {
			typ     byte
			payload []byte
		}{{t1, p1}, {t2, p2}, {t3, p3}} {
			if r.typ == 0 || r.typ == 255 || hugeID(r.typ, r.payload) {
				log.Close()
				t.Skip()
			}
			log.Append(r.typ, r.payload)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		s, err := Open(fs, "spool", tinyConfig(), quickRetries(Options{}))
		if err != nil {
			return
		}
		before := s.Health().Samples
		put(t, s, series, 1, 1<<40)
		if after := s.Health().Samples; after != before+1 {
			t.Errorf("%d samples, then %d", before, after)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		s, err = Open(fs, "spool", tinyConfig(), quickRetries(Options{}))
		if err != nil {
			t.Fatalf("open again: %v", err)
		}
		if again := s.Health().Samples; again != before+1 {
			t.Errorf("%d samples after a restart, want %d", again, before+1)
		}
		s.Close()
	})
}

// hugeID reports whether a record gives a series an id for which a registry and
// a head would need much memory. Real ones are dense, and checksummed.
func hugeID(typ byte, payload []byte) (huge bool) {
	if typ == typeBatch && len(payload) >= stampSize {
		return hugeID(record.TypeBatch, payload[stampSize:])
	}
	if typ == record.TypeBatch {
		record.Definitions(payload, func(d record.Definition) error {
			huge = huge || d.ID > 1<<20
			return nil
		})
	}
	return huge
}

// TestOtherIDs: a series that old records give another id is one series.
func TestOtherIDs(t *testing.T) {
	cfg := tinyConfig()
	cfg.MaxIdleSeries = 0
	fs := vfs.NewMem()
	s := mustOpen(t, fs, cfg, Options{})
	put(t, s, testSeries("load", 0), 1, 1) // takes an id
	put(t, s, testSeries("load", 1), 1, 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// The log of a process that knew load{n=1} under two ids.
	log, err := wal.Open(fs, "spool/log", cfg.Log, wal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	b.Reset(1)
	b.AddLong(77, 1, 2, 0)
	b.AddLong(77, 2, 2, 0)
	payload := record.AppendDefinitions(nil, []record.Definition{{ID: 77, Key: string(testSeries("load", 1).AppendKey(nil))}})
	log.Append(record.TypeBatch, record.AppendSamples(payload, &b, []model.Kind{model.Long, model.Long}))
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	sink := newRemote()
	s = mustOpen(t, fs, cfg, Options{Sink: sink})
	defer s.Close()
	v := s.View()
	ids, err := idsOf(v.Select(context.Background(), "load", nil, model.AllTime, nil))
	v.Close()
	if err != nil || len(ids) != 2 {
		t.Errorf("%d series, %v; want 2", len(ids), err)
	}
	put(t, s, testSeries("load", 1), 3, 3)
	put(t, s, testSeries("load", 2), 3, 3) // gets an id that no record has used
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	want := content{}
	want.set(string(testSeries("load", 0).AppendKey(nil)), 1, "1/0")
	want.set(string(testSeries("load", 1).AppendKey(nil)), 1, "2/0")
	want.set(string(testSeries("load", 1).AppendKey(nil)), 2, "2/0")
	want.set(string(testSeries("load", 1).AppendKey(nil)), 3, "3/0")
	want.set(string(testSeries("load", 2).AppendKey(nil)), 3, "3/0")
	if err := sink.content().diff(want); err != nil {
		t.Error(err)
	}
}
