package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
)

// A workload is what is sent: hosts x metrics series with the same times.
type workload struct {
	name    string
	hosts   int
	startMS int64
	stepMS  int64
	steps   int
}

const metricsPerHost = 20

// w1 is 4,000 series in steps of 10 s over 6 h, 8.64 million points: ten
// two-decimal random walks, seven growing counters and three constants a host,
// six tags, lines of about 133 bytes.
var w1 = workload{name: "W1", hosts: 200, startMS: 1_700_000_000_000, stepMS: 10_000, steps: 2160}

func (w workload) series() int   { return w.hosts * metricsPerHost }
func (w workload) points() int64 { return int64(w.series()) * int64(w.steps) }
func (w workload) endMS() int64  { return w.startMS + int64(w.steps-1)*w.stepMS }

func metricName(m int) string {
	kinds := [...]string{"cpu.usage.percent", "net.bytes.total", "disk.size.bytes"}
	switch {
	case m < 10:
		return fmt.Sprintf("%s.%02d", kinds[0], m)
	case m < 17:
		return fmt.Sprintf("%s.%02d", kinds[1], m)
	}
	return fmt.Sprintf("%s.%02d", kinds[2], m)
}

func hostName(h int) string { return fmt.Sprintf("server-%04d", h) }

// write sends the put lines of hosts [from, to), step by step: of each host all
// metrics, as a collector does.
func (w workload) write(out io.Writer, from, to int) error {
	rng := rand.New(rand.NewPCG(uint64(from), 1))
	type one struct {
		head, tail string
		value      float64
	}
	series := make([]one, 0, (to-from)*metricsPerHost)
	for h := from; h < to; h++ {
		tags := fmt.Sprintf(" host=%s dc=dc%d rack=rack-%02d os=linux-6.1 service=web%02d env=production\n",
			hostName(h), h%4, h%40, h%25)
		for m := range metricsPerHost {
			series = append(series, one{"put " + metricName(m) + " ", tags, float64(rng.IntN(10_000))})
		}
	}
	buffered := bufio.NewWriterSize(out, 64<<10)
	line := make([]byte, 0, 256)
	for step := range w.steps {
		ms := w.startMS + int64(step)*w.stepMS
		for i := range series {
			s := &series[i]
			line = append(line[:0], s.head...)
			line = strconv.AppendInt(line, ms, 10)
			line = append(line, ' ')
			switch m := i % metricsPerHost; {
			case m < 10:
				s.value = math.Round(s.value + float64(rng.IntN(201)-100))
				line = strconv.AppendFloat(line, s.value/100, 'f', 2, 64)
			case m < 17:
				s.value += float64(rng.IntN(1000))
				line = strconv.AppendInt(line, int64(s.value), 10)
			default:
				line = strconv.AppendInt(line, int64(s.value), 10)
			}
			line = append(line, s.tail...)
			if _, err := buffered.Write(line); err != nil {
				return err
			}
		}
	}
	return buffered.Flush()
}
