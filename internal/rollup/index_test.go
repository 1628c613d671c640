package rollup

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Whatever tasks are added, replaced and removed, an index is that of the tasks that are left.
func TestIndex(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	x, tasks := newIndex(), map[string]*task{}
	for range 2000 {
		id := fmt.Sprint(random.IntN(8))
		var one *task
		if random.IntN(3) > 0 {
			one = &task{id: id, rollups: make([]rollup, random.IntN(4))}
			for i := range one.rollups {
				for range random.IntN(4) {
					metric := fmt.Sprint("m", random.IntN(5))
					one.rollups[i].sources = append(one.rollups[i].sources, source{metric: metric})
					for range 1 + random.IntN(2) {
						one.rollups[i].flows = append(one.rollups[i].flows, flow{from: metric, context: fmt.Sprint(random.Uint64())})
					}
				}
			}
		}
		if former := x.set(id, one); former != tasks[id] {
			t.Fatalf("the former task of %s is %v, want %v", id, former, tasks[id])
		}
		if delete(tasks, id); one != nil {
			tasks[id] = one
		}
		want := newIndex()
		for _, one := range tasks {
			want.add(one)
		}
		for _, x := range []*index{x, want} {
			for _, flows := range x.readers {
				slices.SortFunc(flows, func(f, g *flow) int { return strings.Compare(f.context, g.context) })
			}
		}
		if !reflect.DeepEqual(x, want) {
			t.Fatalf("%v, want %v", x, want)
		}
	}
}

// A task that is refused or cannot be stored does not count when another one is checked, and the one that it
// would have replaced still does.
func TestRefusedTaskIsNotIndexed(t *testing.T) {
	h := newHarness(t)
	text := func(id, from, to string) string {
		return strings.NewReplacer(`"src"`, `"`+from+`"`, `"dst"`, `"`+to+`"`).Replace(taskJSON(id, hour, hour, ""))
	}
	h.do(200, "POST", "/api/v1/rollups", text("1", "a", "b"))
	h.do(400, "POST", "/api/v1/rollups", text("2", "b", "a"))
	h.do(200, "POST", "/api/v1/rollups", text("3", "b", "c"))
	h.do(400, "PUT", "/api/v1/rollups/3", text("3", "b", "a"))
	h.do(400, "POST", "/api/v1/rollups", text("4", "c", "a"))
	h.do(200, "PUT", "/api/v1/rollups/3", text("3", "b", "d"))
	h.do(200, "POST", "/api/v1/rollups", text("4", "c", "a"))
	h.do(400, "PUT", "/api/v1/rollups/3", text("3", "b", "c"))
	h.do(204, "DELETE", "/api/v1/rollups/1", "")
	h.do(200, "PUT", "/api/v1/rollups/3", text("3", "b", "c"))
	h.do(400, "POST", "/api/v1/rollups", text("1", "a", "b"))
}
