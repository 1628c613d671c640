package downsample

import (
	"context"
	"errors"
	"math"
	"testing"

	"varve/internal/model"
	"varve/internal/store"
)

// A keptText is where LogNotes store hours. It counts the stores.
type keptText struct {
	text   string
	stored int
	err    error
}

func (k *keptText) notes() *LogNotes {
	n := &LogNotes{}
	n.Store = func(_ context.Context, text []byte) error {
		if k.err == nil {
			k.text, k.stored = string(text), k.stored+1
		}
		return k.err
	}
	n.Forget = func(context.Context) error { k.text = ""; return nil }
	return n
}

// replayed adds samples of a metric under a series number, as a replay does.
func replayed(n *LogNotes, id model.SeriesNumber, metric string, times ...int64) {
	var b store.Batch
	for _, ms := range times {
		b.AddLong(store.Ref(id), ms, 1, 0)
	}
	key := model.Series{Metric: metric, Type: model.TypeLong, Tags: model.MustTags("a", "b")}.AppendKey(nil)
	n.Replayed(&b, func(model.SeriesNumber) string { return string(key) })
}

func wantUnnoted(t *testing.T, n *LogNotes, want string) {
	t.Helper()
	if got := string(n.Unnoted().Text()); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A record may give a series the number of an earlier one.
func TestHoursOfANumberThatIsReused(t *testing.T) {
	for _, id := range []model.SeriesNumber{5, math.MaxUint32} {
		n := (&keptText{}).notes()
		for _, metric := range []string{"a", "b"} {
			n.Introduce(id)
			replayed(n, id, metric, 7)
		}
		wantUnnoted(t, n, `{"a":[[0,3600000]],"b":[[0,3600000]]}`)
	}
}

// The first hour of 1970 and the hour before it are different hours.
func TestHoursAround1970(t *testing.T) {
	n := (&keptText{}).notes()
	replayed(n, 5, "a", -1, 0, 1)
	wantUnnoted(t, n, `{"a":[[-3600000,3600000]]}`)
}

// Hours are stored before a log is released, once, and after the notes. If either
// fails, the log must stay.
func TestHoursAreStoredBeforeALogIsGivenUp(t *testing.T) {
	k := &keptText{}
	n := k.notes()
	var errNotes error
	n.BeforeTrim(func(context.Context) error { return errNotes })
	trim := func(want error, text string, stored int) {
		t.Helper()
		if err := n.Trim(t.Context()); !errors.Is(err, want) || k.text != text || k.stored != stored {
			t.Errorf("%v: %q was stored %d times, want %v, %q, %d", err, k.text, k.stored, want, text, stored)
		}
	}
	trim(nil, "", 0)
	replayed(n, 5, "a", 7)
	errNotes = errors.New("no notes now")
	trim(errNotes, "", 0)
	errNotes, k.err = nil, errors.New("no hours now")
	trim(k.err, "", 0)
	k.err = nil
	trim(nil, `{"a":[[0,3600000]]}`, 1)
	trim(nil, `{"a":[[0,3600000]]}`, 1)
	h := &Hours{}
	h.Add("a", 8)
	n.AddUnnoted(h)
	trim(nil, `{"a":[[0,3600000]]}`, 1)
	h.Add("b", 8)
	n.AddUnnoted(h)
	trim(nil, `{"a":[[0,3600000]],"b":[[0,3600000]]}`, 2)
	again := k.notes()
	if err := again.Restore([]byte(k.text)); err != nil {
		t.Fatal(err)
	}
	wantUnnoted(t, again, `{"a":[[0,3600000]],"b":[[0,3600000]]}`)
	if err := n.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantUnnoted(t, n, "null")
	trim(nil, "", 2)
}
