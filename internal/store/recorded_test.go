package store

import (
	"context"
	"testing"
)

// The caller of a delete is told once, when all parts of it are recorded.
func TestRecorded(t *testing.T) {
	told := 0
	ctx := WithRecorded(context.Background(), func() { told++ })
	parts := RecordedParts(ctx, 2)
	Recorded(context.Background())
	Recorded(WithRecorded(parts[1], nil))
	Recorded(parts[0])
	Recorded(parts[0])
	if told != 0 {
		t.Fatal("told before the second part was recorded")
	}
	Recorded(parts[1])
	Recorded(ctx)
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}
