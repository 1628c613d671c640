package store

import (
	"slices"
	"testing"

	"varve/internal/model"
)

func TestStageLog(t *testing.T) {
	var l StageLog
	l.Add(StageUse{StepMS: 60, FirstMS: 60, LastMS: 119, Count: 1})
	l.Add(StageUse{StepMS: 60, FirstMS: 0, LastMS: 59, Count: 1})
	l.Add(StageUse{StepMS: 3600}) // nothing
	l.AddBlock(&Block{Columns: model.Columns{Times: []int64{9, 8, 7}}})
	l.AddBlock(&Block{Stats: []model.Stats{{FirstMS: 20, LastMS: 29, Count: 5}}})
	l.AddBlock(nil)
	if got, want := l.Used(), []StageUse{{0, 7, 29, 8}, {60, 0, 119, 2}}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	var none *StageLog
	none.Add(StageUse{Count: 1})
	none.AddBlock(&Block{})
}
