package store

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

// A StageUse counts what cursors have read from one stage: samples as they were sent,
// or buckets of one width.
type StageUse struct {
	StepMS          int64 // 0: samples
	FirstMS, LastMS int64 // the time that they cover
	Count           int64 // samples or buckets
}

// A StageLog records which stages a store reads. It is safe for concurrent use. A nil
// StageLog records nothing.
type StageLog struct {
	mu  sync.Mutex
	all map[int64]StageUse // by step
}

// Add notes that data of a stage was read.
func (l *StageLog) Add(u StageUse) {
	if l == nil || u.Count == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if had, there := l.all[u.StepMS]; there {
		u.FirstMS, u.LastMS, u.Count = min(u.FirstMS, had.FirstMS), max(u.LastMS, had.LastMS), u.Count+had.Count
	}
	if l.all == nil {
		l.all = map[int64]StageUse{}
	}
	l.all[u.StepMS] = u
}

// AddBlock notes a block of samples.
func (l *StageLog) AddBlock(b *Block) {
	if l == nil || b == nil {
		return
	}
	if n := len(b.Times); n > 0 {
		l.Add(StageUse{FirstMS: min(b.Times[0], b.Times[n-1]), LastMS: max(b.Times[0], b.Times[n-1]), Count: int64(n)})
	}
	for _, run := range b.Stats {
		l.Add(StageUse{FirstMS: run.FirstMS, LastMS: run.LastMS, Count: int64(run.Count)})
	}
}

// Note returns a cursor that records in l what is read from c.
func (l *StageLog) Note(c Cursor) Cursor {
	if l == nil {
		return c
	}
	return &notedCursor{c, l}
}

type notedCursor struct {
	Cursor
	log *StageLog
}

func (n *notedCursor) Next() (*Block, error) {
	b, err := n.Cursor.Next()
	n.log.AddBlock(b)
	return b, err
}

// Used lists the stages that were read, the finest first.
func (l *StageLog) Used() []StageUse {
	l.mu.Lock()
	defer l.mu.Unlock()
	used := slices.AppendSeq(make([]StageUse, 0, len(l.all)), maps.Values(l.all))
	slices.SortFunc(used, func(a, b StageUse) int { return cmp.Compare(a.StepMS, b.StepMS) })
	return used
}
