package main

import (
	"fmt"
	"math"
)

// A question is one query over the series of one metric of W1, independent of
// any server's language. Its range is a number of whole steps, and excludes its
// end.
type question struct {
	kind             kind
	metric           int
	host             int // allHosts for the series of all hosts
	startMS, endExcl int64
	stepMS           int64 // length of a bucket, 0 if points are asked for
}

type kind uint8

const (
	raw         kind = iota // the points themselves
	average                 // their average in each bucket, for each host
	maximum                 // their maximum in each bucket, over all hosts
	latestPoint             // the last point of each host
	total                   // their sum in each bucket, over all hosts
	mean                    // their average in each bucket, over all hosts, which have the same number of points
)

// overHosts reports whether the answer combines all hosts.
func (k kind) overHosts() bool { return k == maximum || k == total || k == mean }

const allHosts = -1

const minuteMS, hourMS = 60_000, 3_600_000

// A query is a kind of question that is asked repeatedly, each time about other
// series.
type query struct {
	name, about string
	question    func(w workload, turn int) question
}

var queries = []query{
	{"q1", "one series, 1 h, raw", func(w workload, turn int) question {
		start := w.startMS + w.someHour(turn)
		return question{kind: raw, metric: turn % 10, host: turn * 37 % w.hosts, startMS: start, endExcl: start + hourMS}
	}},
	{"q2", "one series, 12 h by 5 min", func(w workload, turn int) question {
		return question{kind: average, metric: turn % 10, host: turn * 37 % w.hosts,
			startMS: w.endMS() - 12*hourMS, endExcl: w.endMS(), stepMS: 5 * minuteMS}
	}},
	{"q3", "all series of a metric by 1 h, whole range, each host", func(w workload, turn int) question {
		return question{kind: average, metric: turn % 10, host: allHosts, startMS: w.startMS, endExcl: w.endMS(), stepMS: hourMS}
	}},
	{"q4", "maximum of all series of a metric by minute, 1 h", func(w workload, turn int) question {
		start := w.startMS + w.someHour(turn)
		return question{kind: maximum, metric: turn % 10, host: allHosts, startMS: start, endExcl: start + hourMS, stepMS: minuteMS}
	}},
	{"q5", "last point of each series of a metric", func(w workload, turn int) question {
		return question{kind: latestPoint, metric: turn % 10, host: allHosts, startMS: w.endMS() - 5*minuteMS, endExcl: w.endMS(), stepMS: 5 * minuteMS}
	}},
	{"q6", "one series, whole range, raw", func(w workload, turn int) question {
		return question{kind: raw, metric: turn % 10, host: turn * 37 % w.hosts, startMS: w.startMS, endExcl: w.endMS()}
	}},
}

// denseQueries are asked about a single metric of many points.
var denseQueries = []query{
	{"sum 1h", "sum of all by hour", func(w workload, _ int) question { return w.allBy(total, hourMS) }},
	{"avg 7m", "average of all by 7 minutes", func(w workload, _ int) question { return w.allBy(mean, 7*minuteMS) }},
	{"max 1m", "maximum of all by minute", func(w workload, _ int) question { return w.allBy(maximum, minuteMS) }},
}

// allBy asks about all whole steps of w's first metric.
func (w workload) allBy(kind kind, stepMS int64) question {
	return question{kind: kind, host: allHosts, startMS: w.startMS, endExcl: w.endMS() - (w.endMS()-w.startMS)%stepMS, stepMS: stepMS}
}

// someHour is the start of one of the first six hours of w, or of all hours if w
// is shorter, in ms from the start of w.
func (w workload) someHour(turn int) int64 {
	hours := min(max((w.endMS()-w.startMS)/hourMS, 1), 6)
	return int64(turn) * 5 % hours * hourMS
}

// An answer has points by host; if it combines all hosts, the host is "".
type answer map[string][]sample

type sample struct {
	ms    int64
	value float64
}

// equal returns an error that says how two answers differ, nil if they do not.
// Times are those of points or of the starts of buckets. Averages may differ in
// their last digits, because servers add values in different orders.
func (a answer) equal(b answer) error {
	if len(a) != len(b) {
		return fmt.Errorf("%d series against %d", len(a), len(b))
	}
	for host, left := range a {
		right := b[host]
		if len(left) != len(right) {
			return fmt.Errorf("%d points against %d of host %q", len(left), len(right), host)
		}
		for i := range left {
			x, y := left[i], right[i]
			if x.ms != y.ms || math.Abs(x.value-y.value) > 1e-9*math.Max(math.Abs(x.value), 1) {
				return fmt.Errorf("point %d of host %q is %d %v against %d %v", i, host, x.ms, x.value, y.ms, y.value)
			}
		}
	}
	return nil
}

// size is the number of points of an answer.
func (a answer) size() (n int) {
	for _, samples := range a {
		n += len(samples)
	}
	return n
}

// counted adds up the values of each host.
func (a answer) counted() map[string]int64 {
	counts := make(map[string]int64)
	for host, samples := range a {
		for _, s := range samples {
			counts[host] += int64(s.value)
		}
	}
	return counts
}
