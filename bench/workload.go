package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A workload is a set of points to send: hosts x metrics() series of steps
// points each. Its fields determine all points.
type workload struct {
	name   string
	hosts  int
	steps  int
	single bool // one metric for each host, metricsPerHost otherwise
	// startMS is a full hour, stepMS whole seconds: put lines carry seconds,
	// because VictoriaMetrics reads them as nothing else.
	startMS int64
	stepMS  int64
	times   timing
	shape   shape
	order   order
	pace    time.Duration // time between sending one step and the next; 0: as fast as the server accepts them
}

const (
	metricsPerHost = 20
	fullHourMS     = 1_699_999_200_000
)

// The three workloads of the table in docs/performance.md: long series, many
// new series, few fast series.
var (
	w1 = workload{name: "W1", hosts: 200, steps: 2160, startMS: fullHourMS, stepMS: 10_000, shape: devops}
	w2 = workload{name: "W2", hosts: 10_000, steps: 20, startMS: fullHourMS, stepMS: 10_000, shape: devops}
	w3 = workload{name: "W3", hosts: 5, steps: 172_800, startMS: fullHourMS, stepMS: 1_000, shape: devops}
)

// w1s and live are for KairosDB and Varve over Cassandra: an hour of W1 as fast
// as the server accepts it, and more hosts for three minutes at the pace of
// collectors.
var (
	w1s  = workload{name: "W1s", hosts: 200, steps: 360, startMS: fullHourMS, stepMS: 10_000, shape: devops}
	live = workload{name: "live", hosts: 2500, steps: 18, startMS: fullHourMS, stepMS: 10_000, shape: devops, pace: 10 * time.Second}
)

// dense is a single metric of 100 series over two days; queries aggregate all
// of it. Its series are gauges, counters and constants in turn.
var dense = workload{name: "dense", hosts: 100, single: true, steps: 172_800, startMS: fullHourMS, stepMS: 1_000, shape: devops}

// shapes are workloads of other kinds. On none of them may the server be much
// slower.
var shapes = []workload{
	{name: "integers", hosts: 100, steps: 1080, startMS: fullHourMS, stepMS: 10_000, shape: integers},
	{name: "doubles", hosts: 100, steps: 1080, startMS: fullHourMS, stepMS: 10_000, shape: doubles},
	{name: "noisy", hosts: 100, steps: 1080, startMS: fullHourMS, stepMS: 10_000, shape: noisy},
	{name: "constant", hosts: 100, steps: 1080, startMS: fullHourMS, stepMS: 10_000, shape: constant},
	{name: "sparse", hosts: 100, steps: 1080, startMS: fullHourMS, stepMS: 1_200_000, shape: devops, times: irregular},
	{name: "bursts", hosts: 100, steps: 1080, startMS: fullHourMS, stepMS: 1_000, shape: devops, times: bursts},
	{name: "late", hosts: 100, steps: 1080, startMS: fullHourMS, stepMS: 10_000, shape: devops, order: late},
	{name: "million", hosts: 50_000, steps: 5, startMS: fullHourMS, stepMS: 60_000, shape: devops, order: shuffled},
}

// timing says at which times a series has points.
type timing uint8

const (
	regular   timing = iota // every stepMS
	irregular               // one in each stepMS, at a random second of it
	bursts                  // 30 at stepMS, then nothing for the rest of the hour
)

const burst = 30

// order is how the points of a step are sent.
type order uint8

const (
	inOrder  order = iota // host by host, of each all metrics, as collectors do
	shuffled              // in a different order at each step
	late                  // shuffled, and one in twenty up to some hundred steps late
)

func (w workload) series() int   { return w.hosts * w.metrics() }
func (w workload) points() int64 { return int64(w.series()) * int64(w.steps) }

// metrics is the number of metrics; a host has one series of each.
func (w workload) metrics() int {
	if w.single {
		return 1
	}
	return metricsPerHost
}

// endMS is a time after the last point of w.
func (w workload) endMS() int64 {
	if w.times == bursts {
		return w.startMS + int64((w.steps+burst-1)/burst)*3_600_000
	}
	return w.startMS + int64(w.steps)*w.stepMS
}

// at is the time of one point. The times of a series ascend.
func (w workload) at(series, step int) int64 {
	switch w.times {
	case irregular:
		seconds := uint64(w.stepMS / 1000)
		return w.startMS + int64(step)*w.stepMS + int64(mix(series, ^step)%seconds)*1000
	case bursts:
		offset := int64(mix(series, -1)%3000) * 1000
		return w.startMS + int64(step/burst)*3_600_000 + offset + int64(step%burst)*w.stepMS
	}
	return w.startMS + int64(step)*w.stepMS
}

// String describes the size of w.
func (w workload) String() string {
	return fmt.Sprintf("%d series x %d points = %.2f M", w.series(), w.steps, float64(w.points())/1e6)
}

func metricName(m int) string {
	switch {
	case m < 10:
		return fmt.Sprintf("cpu.usage.percent.%02d", m)
	case m < 17:
		return fmt.Sprintf("net.bytes.total.%02d", m)
	}
	return fmt.Sprintf("disk.size.bytes.%02d", m)
}

func hostName(h int) string { return fmt.Sprintf("server-%04d", h) }

// A tag is a name and its value.
type tag struct{ name, value string }

// hostTags are the tags of all series of a host, sorted by name.
func hostTags(h int) []tag {
	return []tag{
		{"dc", fmt.Sprintf("dc%d", h%4)},
		{"env", "production"},
		{"host", hostName(h)},
		{"os", "linux-6.1"},
		{"rack", fmt.Sprintf("rack-%02d", h%40)},
		{"service", fmt.Sprintf("web%02d", h%25)},
	}
}

// A point is one sample of the series of a host and a metric.
type point struct {
	host, metric int
	ms           int64
	value        value
}

// lateness is the average number of steps by which late points are delayed.
const lateness = 60

// generate calls emit for each point of hosts [from, to), step by step. It ends
// with the first error of emit.
func (w workload) generate(from, to int, emit func(point) error) error {
	perHost := w.metrics()
	n := (to - from) * perHost
	states := make([]int64, n)
	turns := make([]int32, n)
	for i := range states {
		states[i] = int64(mix(from*perHost+i, -2) % 10_000)
		turns[i] = int32(i)
	}
	random := rand.New(rand.NewPCG(uint64(from), uint64(to)))
	var held []point
	began := time.Now()
	for step := range w.steps {
		if w.pace > 0 {
			time.Sleep(time.Until(began.Add(time.Duration(step) * w.pace)))
		}
		if w.order != inOrder {
			random.Shuffle(n, func(i, j int) { turns[i], turns[j] = turns[j], turns[i] })
		}
		for _, i := range turns {
			series := from*perHost + int(i)
			p := point{host: series / perHost, metric: series % perHost, ms: w.at(series, step)}
			noise := mix(series, step)
			p.value = w.shape(series%metricsPerHost, states[i], noise)
			states[i] = p.value.mantissa
			if w.order == late && noise>>32%20 == 0 {
				held = append(held, p)
				continue
			}
			if err := emit(p); err != nil {
				return err
			}
		}
		for len(held) > lateness*n/20 {
			i := random.IntN(len(held))
			p := held[i]
			held[i] = held[len(held)-1]
			held = held[:len(held)-1]
			if err := emit(p); err != nil {
				return err
			}
		}
	}
	random.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
	for _, p := range held {
		if err := emit(p); err != nil {
			return err
		}
	}
	return nil
}
