package embedded

import (
	"fmt"
	"sync/atomic"

	"varve/internal/embedded/datadir"
	"varve/internal/model"
	"varve/internal/wal"
)

// An Opening reports the progress of Open, while Open runs and afterwards. A nil Opening records
// nothing.
type Opening struct {
	percent atomic.Int64
	stage   atomic.Pointer[string]
}

// String is for example "40 %: reading the series".
func (o *Opening) String() string {
	stage := "opening the store"
	if s := o.stage.Load(); s != nil {
		stage = *s
	}
	return fmt.Sprintf("%d %%: %s", o.percent.Load(), stage)
}

// Nearly all of the time goes into reading the series and the log, which take
// comparable times.
var (
	openingSeries = "reading the series"
	openingLog    = "reading the write-ahead log"

	openingNoSpace = "the disk is full; opening continues when there is space"
	openingFails   = "a file cannot be written, see the log; will retry"
)

const (
	openingSeriesUntil = 50
	openingLogUntil    = 99
)

// set records that n of all units of a stage are done. The stage takes the progress from
// one percentage to another.
func (o *Opening) set(stage *string, from, until, n, all int64) {
	if o == nil {
		return
	}
	o.stage.Store(stage)
	if all > 0 {
		o.percent.Store(from + (until-from)*min(n, all)/all)
	}
}

func (o *Opening) series(id, next model.SeriesNumber) {
	o.set(&openingSeries, 0, openingSeriesUntil, int64(id), int64(next))
}

func (o *Opening) log(read, size int64) {
	o.set(&openingLog, openingSeriesUntil, openingLogUntil, read, size)
}

// failed records why the opening does not continue. The text must be fit for anyone to read,
// because the health status is public. The next stage replaces it.
func (o *Opening) failed(err error) {
	stage := &openingFails
	if wal.NoSpace(err) {
		stage = &openingNoSpace
	}
	o.set(stage, 0, 0, 0, 0)
}

// logSize is the size of the log segments that replay reads.
func (s *Store) logSize() (size int64) {
	segments, err := wal.Segments(s.fs, s.path(datadir.Log))
	if err != nil {
		return 0 // replay returns the error
	}
	for _, segment := range segments {
		if segment < s.catalogue.LogFrom() {
			continue
		}
		if info, err := s.fs.Stat(s.fs.PathJoin(s.path(datadir.Log), segment.FileName())); err == nil {
			size += info.Size()
		}
	}
	return size
}
