package events

import (
	"encoding/hex"
	"reflect"
	"testing"
	"time"

	"varve/internal/timeline"
)

// The bytes of a row, of a row of arrivals and of a cursor do not change.
func TestFormats(t *testing.T) {
	inline := timeline.Entry{Event: timeline.Event{Type: "kind", Data: []byte("data")}}
	large := timeline.Entry{Event: timeline.Event{Data: make([]byte, inlineBytesMax+1)}}
	pointer := timeline.Entry{Event: timeline.Event{Type: "é"}, Pointer: timeline.PayloadKey{0: 1, 15: 2}, Size: 300}
	c := cursor{made: 1_790_000_000_000_000, logs: []place{{-5, 1_790_000_000_000_001, 0}, {7, 1_789_999_999_999_000, 3}}}
	for _, x := range []struct {
		what string
		got  []byte
		want string
	}{
		{"inline", appendRow(nil, &inline), "01046b696e6464617461"},
		{"pieces", appendRow(nil, &large), "0200818002"},
		{"pointer", appendRow(nil, &pointer), "0302c3a901000000000000000000000000000002ac02"},
		{"ref", appendRef([]byte{refsVersion}, ref{-10, 3, timeline.Position{Time: 5, ID: "id"}}), "0113030a026964"},
		{"cursor", c.encode(), "0100065bfeda25e000fffffffb020000000007cf0f03"},
	} {
		if got := hex.EncodeToString(x.got); got != x.want {
			t.Errorf("%s is %s, want %s", x.what, got, x.want)
		}
	}
}

func FuzzRow(f *testing.F) {
	for _, e := range []timeline.Entry{{}, {Event: timeline.Event{Type: "t", Data: []byte("d")}}, {Pointer: timeline.PayloadKey{1}, Size: 9}} {
		f.Add(appendRow(nil, &e))
	}
	f.Fuzz(func(t *testing.T, cell []byte) {
		var e timeline.Entry
		inPieces, err := parseRow(cell, &e)
		if err != nil || inPieces {
			return
		}
		var again timeline.Entry
		if _, err := parseRow(appendRow(nil, &e), &again); e.Pointer == (timeline.PayloadKey{}) && len(e.Data) > inlineBytesMax {
			return // as it would be written today, its data is in pieces
		} else if err != nil || !reflect.DeepEqual(e, again) {
			t.Errorf("%+v, then %+v, %v", e, again, err)
		}
	})
}

func FuzzRefs(f *testing.F) {
	f.Add(appendRef([]byte{refsVersion}, ref{-10, 3, timeline.Position{Time: 5, ID: "id"}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		refs, err := parseRefs(data)
		if err != nil {
			return
		}
		row := []byte{refsVersion}
		for _, r := range refs {
			row = appendRef(row, r)
		}
		if again, err := parseRefs(row); err != nil || !reflect.DeepEqual(refs, again) {
			t.Errorf("%v, then %v, %v", refs, again, err)
		}
	})
}

func FuzzCursor(f *testing.F) {
	now := time.UnixMicro(1_790_000_000_000_000)
	c := cursor{made: now.UnixMicro(), logs: []place{{-5, now.UnixMicro() + 1, 0}, {7, now.UnixMicro() - 1000, 3}}}
	f.Add(c.encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseCursor(data, now)
		if err != nil {
			return
		}
		again, err := parseCursor(c.encode(), now)
		if err != nil || !reflect.DeepEqual(c, again) {
			t.Errorf("%+v, then %+v, %v", c, again, err)
		}
		if len(c.encode()) > timeline.ArrivalBytesMax {
			t.Errorf("%d bytes", len(c.encode()))
		}
	})
}
