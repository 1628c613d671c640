package rollup

import (
	"slices"

	"varve/internal/clip"
	"varve/internal/store"
)

// An index finds the queries of all scheduled tasks by the metric that they read. Without it, each
// task that is stored would be compared with all queries of all others.
type index struct {
	tasks   map[string]*task   // by id
	readers map[string][]*flow // the flows of all tasks, by the metric that they read
	queries map[string]int     // how many queries of all tasks read a metric
	memory  int64              // of all tasks
}

func newIndex(tasks ...*task) *index {
	x := &index{tasks: map[string]*task{}, readers: map[string][]*flow{}, queries: map[string]int{}}
	for _, t := range tasks {
		x.set(t.id, t)
	}
	return x
}

// set replaces the task of an id, which it returns. nil means no task.
func (x *index) set(id string, t *task) (former *task) {
	if former = x.tasks[id]; former == t {
		return former
	}
	if former != nil {
		x.remove(former)
	}
	if t != nil {
		x.add(t)
	}
	return former
}

func (x *index) add(t *task) {
	x.tasks[t.id] = t
	x.memory += t.memory
	for _, f := range t.flows() {
		x.readers[f.from] = append(x.readers[f.from], f)
	}
	for metric, n := range t.queries() {
		x.queries[metric] += n
	}
}

func (x *index) remove(t *task) {
	delete(x.tasks, t.id)
	x.memory -= t.memory
	gone := map[string]map[*flow]bool{} // by the metric that they read
	for _, f := range t.flows() {
		if gone[f.from] == nil {
			gone[f.from] = map[*flow]bool{}
		}
		gone[f.from][f] = true
	}
	for metric, flows := range gone {
		x.readers[metric] = slices.DeleteFunc(x.readers[metric], func(f *flow) bool { return flows[f] })
		if len(x.readers[metric]) == 0 {
			delete(x.readers, metric)
		}
	}
	for metric, n := range t.queries() {
		if x.queries[metric] -= n; x.queries[metric] == 0 {
			delete(x.queries, metric)
		}
	}
}

// queries returns how many queries of a task read each metric.
func (t *task) queries() map[string]int {
	n := map[string]int{}
	for _, src := range t.sources() {
		n[src.metric]++
	}
	return n
}

// maxReaders is how many queries of all tasks may read one metric. Each of them notes
// each late sample of the metric.
const maxReaders = 1000

// checkReaders refuses a task in the index if, with it, too many queries read one metric. It
// accepts a task that has no more queries of the metric than former, the previous task with the
// same id; former may be nil.
func (x *index) checkReaders(t, former *task) error {
	var before map[string]int
	if former != nil {
		before = former.queries()
	}
	for metric, n := range t.queries() {
		if all := x.queries[metric]; all > maxReaders && n > before[metric] {
			return &store.LimitError{
				Limit: "roll-up queries of one metric", Max: maxReaders, Need: int64(all),
				What: "store a roll-up task that reads " + clip.Text(metric, clippedBytes),
			}
		}
	}
	return nil
}

// checkMemory refuses a task in the index if, with it, all tasks take more memory than limit. It
// accepts a task that takes no more memory than former, the previous task with the same id; former may
// be nil. A task is in memory for as long as it exists, also after a restart, and a text of some
// hundred bytes may have patterns of megabytes.
func (x *index) checkMemory(t, former *task, limit int64) error {
	if x.memory <= limit || former != nil && t.memory <= former.memory {
		return nil
	}
	return &store.LimitError{Limit: "bytes of roll-up tasks in memory", Max: limit, Need: x.memory, What: "store a roll-up task"}
}
