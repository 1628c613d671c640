package agg

// A merger yields the samples of several sources by time, then value, then series; all
// three descending if descending is set. It is a binary heap.
type merger struct {
	heap       []mergeNode
	descending bool
	begun      bool
}

// A mergeNode caches the sort key of a source.
type mergeNode struct {
	ms    int64
	value float64
	src   *source
}

func newMerger(sources []*source, descending bool) *merger {
	m := &merger{heap: make([]mergeNode, 0, len(sources)), descending: descending}
	for _, s := range sources {
		m.heap = append(m.heap, mergeNode{s.block.Times[s.i], s.value(), s})
	}
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.down(i)
	}
	return m
}

func (m *merger) less(a, b *mergeNode) bool {
	if m.descending {
		a, b = b, a
	}
	if a.ms != b.ms {
		return a.ms < b.ms
	}
	if a.value != b.value {
		return a.value < b.value
	}
	return a.src.order < b.src.order
}

func (m *merger) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(m.heap) {
			return
		}
		if right := child + 1; right < len(m.heap) && m.less(&m.heap[right], &m.heap[child]) {
			child = right
		}
		if !m.less(&m.heap[child], &m.heap[i]) {
			return
		}
		m.heap[i], m.heap[child] = m.heap[child], m.heap[i]
		i = child
	}
}

func (m *merger) Next(p *Point) (bool, error) {
	if m.begun {
		if err := m.advance(); err != nil {
			return false, err
		}
	}
	m.begun = true
	if len(m.heap) == 0 {
		return false, nil
	}
	m.heap[0].src.point(p)
	return true, nil
}

// advance advances the source of the sample that was returned last.
func (m *merger) advance() error {
	if len(m.heap) == 0 {
		return nil
	}
	top := &m.heap[0]
	ok, err := top.src.next()
	if err != nil {
		return err
	}
	if ok {
		top.ms, top.value = top.src.block.Times[top.src.i], top.src.value()
	} else {
		last := len(m.heap) - 1
		m.heap[0] = m.heap[last]
		m.heap = m.heap[:last]
	}
	m.down(0)
	return nil
}
