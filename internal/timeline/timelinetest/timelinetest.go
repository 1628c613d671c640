// Package timelinetest is the conformance suite of timeline.Shelf, and of engines over a shelf.
package timelinetest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/timeline"
)

// Run tests a shelf and engines over it. open returns a shelf that the test closes, and whose
// timelines are used by nothing else. Each test has its own names of timelines, so shelves may share
// storage.
func Run(t *testing.T, open func(t *testing.T) timeline.Shelf) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s *suite)
	}{
		{"put and slice", testSlice},
		{"slice limits", testSliceLimits},
		{"put again", testPutAgain},
		{"delete", testDelete},
		{"marks", testMarks},
		{"history", testHistory},
		{"concurrent histories", testConcurrentHistories},
		{"names", testNames},
		{"payloads", testPayloads},
		{"payload/sent again", testResent},
		{"payload/many sent again", testResentMany},
		{"payload/sent again to one timeline", testResentToOne},
		{"payload/sent again at once", testResentAtOnce},
		{"payload/retention", testExpiredPayloads},
		{"payload/deleted while read", testDeletedWhileRead},
		{"payload/interrupted delete", testDeleteInterrupted},
		{"arrivals", testArrivals},
		{"a cancelled context", testCancelled},

		{"engine/page", testPage},
		{"engine/start", testStart},
		{"engine/refused first", testRefusedFirst},
		{"engine/created at once", testCreatedAtOnce},
		{"engine/sparse", testSparse},
		{"engine/one time", testOneTime},
		{"engine/factors", testFactors},
		{"engine/round robin", testRoundRobin},
		{"engine/replaced", testReplaced},
		{"engine/sizes", testSizes},
		{"engine/fence", testFence},
		{"engine/ahead", testAhead},
		{"engine/clock set back", testClockSetBack},
		{"engine/start with a clock ahead", testStartWithAClockAhead},
		{"engine/start with a clock behind", testStartWithAClockBehind},
		{"engine/own", testOwn},
		{"engine/merge", testMerge},
		{"engine/modes", testModes},
		{"engine/retention", testRetention},
		{"engine/retention changed elsewhere", testRetentionElsewhere},
		{"engine/asleep", testAsleep},
		{"engine/retention changed during upkeep", testRetentionDuringUpkeep},
		{"engine/deletion", testDeletion},
		{"engine/delete many by id", testDeleteManyByID},
		{"engine/delete slowly", testDeleteSlowly},
		{"engine/tail", testTail},
		{"engine/guard", testGuard},
		{"engine/odd size", testOddSize},
		{"engine/beginning of time", testBeginningOfTime},
		{"engine/read errors", testReadErrors},
		{"engine/slow", testSlow},
		{"engine/replaced meanwhile", testReplacedMeanwhile},
	} {
		t.Run(test.name, func(t *testing.T) {
			shelf := open(t)
			t.Cleanup(func() { shelf.Close() })
			test.run(t, &suite{t: t, shelf: shelf, prefix: t.Name() + "/"})
		})
	}
}

// Buckets returns the shelf without the ability to read a timeline as a whole, so that the
// engine walks through its buckets.
func Buckets(s timeline.Shelf) timeline.Shelf { return buckets{s} }

type buckets struct{ timeline.Shelf }

// A suite is one test's shelf.
type suite struct {
	t      *testing.T
	shelf  timeline.Shelf
	prefix string
}

// name returns the name of a timeline of this test.
func (s *suite) name(n string) string { return s.prefix + n }

func (s *suite) ctx() context.Context { return s.t.Context() }

// must fails the test on an error.
func (s *suite) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// A clock is set by the test. It advances by a microsecond at each call.
type clock struct {
	at    time.Time
	looks atomic.Int64
}

func (c *clock) now() time.Time { return c.at.Add(time.Duration(c.looks.Add(1)) * time.Microsecond) }

const second = int64(1_000_000)
