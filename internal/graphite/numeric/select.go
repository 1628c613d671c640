package numeric

import (
	"math/bits"
	"slices"
)

// present returns the values that are not null.
func present(values []float64) []float64 {
	out := make([]float64, 0, len(values))
	for _, v := range values {
		if !IsNull(v) {
			out = append(out, v)
		}
	}
	return out
}

// fewValues is the number of values that nth sorts instead of partitioning them.
const fewValues = 32

// nth returns the value that is at index n once values are sorted. It takes linear time, and reorders
// values: none before index n is greater, none after it is less.
func nth(values []float64, n int) float64 {
	low, high := 0, len(values) // index n is in values[low:high]
	for rounds := 2 * bits.Len(uint(len(values))); high-low > fewValues && rounds > 0; rounds-- {
		pivot := middle(values[low], values[low+(high-low)/2], values[high-1])
		less, more := partition(values[low:high], pivot)
		switch at := n - low; {
		case at < less:
			high = low + less
		case at >= more:
			low += more
		default:
			return pivot
		}
	}
	slices.Sort(values[low:high]) // few values, or values for which most pivots were bad
	return values[n]
}

// middle returns the median of three values.
func middle(a, b, c float64) float64 { return max(min(a, b), min(max(a, b), c)) }

// partition moves values less than the pivot to the front and greater ones to the end. Values equal to
// the pivot are then in values[less:more].
func partition(values []float64, pivot float64) (less, more int) {
	more = len(values)
	for i := 0; i < more; {
		switch v := values[i]; {
		case v < pivot:
			values[i], values[less] = values[less], v
			less++
			i++
		case v > pivot:
			more--
			values[i], values[more] = values[more], v
		default:
			i++
		}
	}
	return less, more
}

// sortBlock is the number of values that are sorted, or merged, between two checks.
const sortBlock = 1 << 14

// sortChecked returns the sorted values. It may overwrite values. It calls check regularly and ends with
// its error.
func sortChecked(values []float64, check func() error) ([]float64, error) {
	for block := range slices.Chunk(values, sortBlock) {
		slices.Sort(block)
		if err := check(); err != nil {
			return nil, err
		}
	}
	if len(values) <= sortBlock {
		return values, nil
	}
	out := make([]float64, len(values))
	for width := sortBlock; width < len(values); width *= 2 {
		for first := 0; first < len(values); first += 2 * width {
			mid, end := min(first+width, len(values)), min(first+2*width, len(values))
			if err := merge(out[first:end], values[first:mid], values[mid:end], check); err != nil {
				return nil, err
			}
		}
		values, out = out, values
	}
	return values, nil
}

// merge merges two sorted lists.
func merge(out, a, b []float64, check func() error) error {
	for i := range out {
		if len(b) == 0 || len(a) > 0 && a[0] <= b[0] {
			out[i], a = a[0], a[1:]
		} else {
			out[i], b = b[0], b[1:]
		}
		if i%sortBlock == sortBlock-1 {
			if err := check(); err != nil {
				return err
			}
		}
	}
	return nil
}
