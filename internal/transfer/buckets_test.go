package transfer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/store/reference"
)

// A bucketed store has downsampled buckets beside the samples of each series.
type bucketed struct {
	store.Viewer
	blocks []store.Buckets
	after  func() // is called after each block
}

type bucketedView struct {
	store.View
	of *bucketed
}

type bucketCursor struct {
	of   *bucketed
	left []store.Buckets
}

func (b *bucketed) View(ctx context.Context) (store.View, error) {
	v, err := b.Viewer.View(ctx)
	return bucketedView{v, b}, err
}

func (v bucketedView) Read(ctx context.Context, s store.Series, o store.ReadOptions) store.Cursor {
	if o.Buckets == store.BucketsOnly {
		return &bucketCursor{v.of, v.of.blocks}
	}
	return v.View.Read(ctx, s, o)
}

func (c *bucketCursor) Next() (*store.Block, error) {
	if len(c.left) == 0 {
		return nil, nil
	}
	defer c.of.after()
	b := &c.left[0]
	c.left = c.left[1:]
	return &store.Block{Buckets: b}, nil
}

func (c *bucketCursor) Close() {}

// bucketsOf makes n buckets of a step.
func bucketsOf(stepMS int64, n int) (all store.Buckets) {
	for i := range int64(n) {
		b := store.Bucket{StartMS: i * stepMS, StepMS: stepMS}
		b.Add(b.StartMS+1, float64(i)+0.5)
		all.Add(b, model.AllStats)
	}
	return all
}

// TestExportBuckets: buckets follow the samples of their series, those of each step on lines of their own.
func TestExportBuckets(t *testing.T) {
	s := reference.New(nil)
	put(t, s, "m", model.TypeLong, func(b *store.Batch, ref store.Ref) { b.AddLong(ref, 1, 1, 0); b.AddLong(ref, 2, 1, 0) })
	src := &bucketed{s, []store.Buckets{bucketsOf(300_000, 2), bucketsOf(60_000, 3), bucketsOf(60_000, 1), bucketsOf(300_000, 1)}, func() {}}
	var out bytes.Buffer
	points, err := ExportBuckets(t.Context(), src, "m", model.AllTime, &out)
	if err != nil || points != 9 {
		t.Fatalf("%d points, %v", points, err)
	}
	var got []string
	for d := json.NewDecoder(&out); d.More(); {
		var line struct {
			Name, Type string
			Datapoints [][]any
		}
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %s %d", line.Name, line.Type, len(line.Datapoints)))
	}
	of := func(stepMS, n int) string { return fmt.Sprintf("m base64:%s%d %d", BucketType, stepMS, n) }
	if want := []string{"m  2", of(300_000, 2), of(60_000, 4), of(300_000, 1)}; !slices.Equal(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
}

// A brokenOnce fails its first write.
type brokenOnce struct{ writes int }

func (b *brokenOnce) Write(p []byte) (int, error) {
	if b.writes++; b.writes == 1 {
		return 0, errBroken
	}
	return len(p), nil
}

// An export of buckets ends when they cannot be written, or when its client has gone.
func TestExportOfBucketsEnds(t *testing.T) {
	s := reference.New(nil)
	put(t, s, "m", model.TypeLong, func(b *store.Batch, ref store.Ref) { b.AddLong(ref, 1, 1, 0) })
	read := 0
	src := &bucketed{s, slices.Repeat([]store.Buckets{bucketsOf(60_000, 20_000)}, 10), func() { read++ }}
	if _, err := ExportBuckets(t.Context(), src, "m", model.AllTime, &brokenOnce{}); !errors.Is(err, errBroken) || read != 1 {
		t.Errorf("to a broken writer, after %d blocks: %v", read, err)
	}
	gone := errors.New("gone")
	ctx, leave := context.WithCancelCause(t.Context())
	src = &bucketed{uncancelled{s}, src.blocks, func() { leave(gone) }}
	if _, err := ExportBuckets(ctx, src, "m", model.AllTime, new(bytes.Buffer)); !errors.Is(err, gone) {
		t.Errorf("to a client that has gone: %v", err)
	}
}
