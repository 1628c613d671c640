package numeric

// An Accumulator adds the values of a series to the results so far, and counts, for
// each row, the values that are not null. All slices begin at the same row; out and
// counts are as long as the longest series.
type Accumulator func(out []float64, counts []int32, column []float64)

// AccumulatorOf returns the accumulator of an aggregation, if it has one. To
// aggregate series by series is faster than row by row. For an average, the caller
// divides out by counts.
func AccumulatorOf(name string) (Accumulator, bool) {
	a, ok := accumulators[name]
	return a, ok
}

var accumulators = map[string]Accumulator{
	"sum": addUp, "total": addUp, "average": addUp, "avg": addUp,
	"max": func(out []float64, counts []int32, column []float64) {
		for i, v := range column {
			if IsNull(v) {
				continue
			}
			if counts[i] == 0 || v > out[i] {
				out[i] = v
			}
			counts[i]++
		}
	},
	"min": func(out []float64, counts []int32, column []float64) {
		for i, v := range column {
			if IsNull(v) {
				continue
			}
			if counts[i] == 0 || v < out[i] {
				out[i] = v
			}
			counts[i]++
		}
	},
}

func addUp(out []float64, counts []int32, column []float64) {
	for i, v := range column {
		if !IsNull(v) {
			out[i] += v
			counts[i]++
		}
	}
}

// EachRow sets out to the result of fold for each row of columns. Nulls extend
// shorter columns. fold must not keep its argument. EachRow calls check regularly
// and ends with its error.
func EachRow(out []float64, columns [][]float64, fold Aggregation, check func() error) error {
	row := make([]float64, len(columns))
	work := 0
	for i := range out {
		for k, column := range columns {
			row[k] = Null
			if i < len(column) {
				row[k] = column[i]
			}
		}
		out[i] = fold(row)
		if work += len(row); work > 1<<18 {
			work = 0
			if err := check(); err != nil {
				return err
			}
		}
	}
	return nil
}
