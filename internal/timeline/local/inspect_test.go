package local

import (
	"bytes"
	"regexp"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/timeline"
)

// TestInspect: what a server left, also without a close, is listed and stays as it is.
func TestInspect(t *testing.T) {
	mem := crashfs.New()
	s := open(t, mem, Options{})
	e, err := timeline.Open(s, timeline.Options{Upkeep: -1})
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{1_700_000_000_000_000, 1_700_000_060_000_001} {
		r, err := e.Append(t.Context(), []timeline.Addressed{{Event: timeline.Event{Time: at, Data: []byte("x")}, Timelines: []string{"deploys", "team/wéb"}}})
		if err != nil || r.Accepted != 1 {
			t.Fatal(r, err)
		}
	}
	if _, err := e.SetRetention(t.Context(), "deploys", time.Hour*24*365*100); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Propose(t.Context(), "empty", timeline.Proposal{}); err != nil {
		t.Fatal(err)
	}
	left := mem.CrashClone(vfs.CrashCloneCfg{})
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var out bytes.Buffer
		if err := Inspect(t.Context(), left, "timelines", &out); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			`^timelines  3\ndisk space \d+ bytes\n`,
			`\n"deploys" +\d+ +1 +876000h +2023-11-14T22:13:20.000000Z +2023-11-14T22:14:20.000001Z\n`,
			`\n"empty" +0 +1 +forever +- +-\n`,
			`\n"team/wéb" `,
		} {
			if !regexp.MustCompile(want).Match(out.Bytes()) {
				t.Errorf("no %s in\n%s", want, &out)
			}
		}
	}
	if err := Inspect(t.Context(), left, "nowhere", &bytes.Buffer{}); err == nil {
		t.Error("a directory that is not there was inspected")
	}
}
