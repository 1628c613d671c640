package agg

// Neighbours tells who computes a part of a query what the steps look at beside
// it: back is how many points before a point its result depends on, tail that
// the end of the points changes what comes before it.
func Neighbours(steps []Step) (back int, tail bool) {
	for _, s := range steps {
		switch s := s.(type) {
		case *pairStep:
			back++
		case *smaStep:
			back += int(min(max(s.size, 1), maxBack)) - 1
		case *trimStep:
			if s.first {
				back++
			}
			tail = tail || s.last
		}
	}
	return min(back, maxBack), tail
}

// maxBack bounds what Neighbours asks for.
const maxBack = 100_000
