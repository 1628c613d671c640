package agg

// Neighbours returns which points around a part of a query the steps need to compute
// this part: back is the number of preceding points on which the result of a point
// depends; tail means that the end of the points affects earlier results.
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

// maxBack bounds the result of Neighbours.
const maxBack = 100_000
