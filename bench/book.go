package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// A book records measurements row by row, and prints them.
type book struct {
	Machine  machine           `json:"machine"`
	Versions map[string]string `json:"versions"`
	Rows     []*row            `json:"rows"`
	Failures []failure         `json:"failures"`

	targets []string // columns, Varve first
	titles  map[string]string
}

// machine is the machine on which the measurements were made.
type machine struct {
	CPUs   int    `json:"cpus"`
	Model  string `json:"model"`
	Kernel string `json:"kernel"`
	Begun  string `json:"begun"`
}

// A row is one figure of a stage.
type row struct {
	Stage  string `json:"stage"`
	Figure string `json:"figure"`
	Unit   string `json:"unit"`
	Goal   *goal  `json:"goal,omitempty"`
	// Values are the measured values by target and round.
	Values map[string]map[int]float64 `json:"values"`
	// Medians are the medians over rounds.
	Medians map[string]float64 `json:"medians"`
	// Ratios are Varve's value divided by the peer's of the same round, the
	// median over rounds.
	Ratios map[string]float64 `json:"ratios"`
}

// A failure is a stage that a server did not complete correctly.
type failure struct {
	Stage  string `json:"stage"`
	Target string `json:"target"`
	Error  string `json:"error"`
}

// A figure is a kind of row.
type figure struct{ name, unit string }

var (
	figureCPU      = figure{"server CPU, until visible", "s/M points"}
	figureCPUAll   = figure{"server CPU, with settling", "s/M points"}
	figureSpeed    = figure{"stored and visible", "M points/s"}
	figureBytes    = figure{"on disk, settled", "bytes/point"}
	figurePart     = "  of it " // followed by the name of a directory, bytes/point
	figurePeak     = figure{"peak RSS of ingest", "MB"}
	figureOwnCPU   = figure{"  of it the server alone", "s/M points"}
	figureIdle     = figure{"CPU at rest, not counted", "s/s"}
	figureOwnPeak  = figure{"peak RSS of the server alone", "MB"}
	figureVisible  = figure{"sent to visible, worst of 3", "ms"}
	figureP50      = figure{"p50", "ms"}
	figureP99      = figure{"p99", "ms"}
	figureQueryCPU = figure{"server CPU", "ms/query"}
	figureRate     = figure{"answers", "1/s"}
	figureTaken    = figure{"points taken", "M points/s"}
	figureBusyCPU  = figure{"server CPU, all of it", "s"}
	figureReady    = figure{"start to healthy", "s"}
	figureAnswers  = figure{"start to first answer", "s"}
	figureOpenPeak = figure{"RSS after start", "MB"}
	figureLost     = figure{"points lost", ""}
)

// A goal is a figure that Varve has to reach. Times depend on the machine, so
// the ratio to VictoriaMetrics counts as well.
type goal struct {
	Most  float64 `json:"most,omitempty"`  // 0 for none
	Ratio float64 `json:"ratio,omitempty"` // 0 for none
	Peer  string  `json:"peer,omitempty"`  // "" for VictoriaMetrics
}

// goals has the goals by stage and figure. Ratios are relative to
// VictoriaMetrics unless Peer says otherwise.
var goals = map[string]goal{
	"W1 " + figureCPU.name:          {Ratio: 0.34},
	"W2 " + figureCPU.name:          {Ratio: 0.30},
	"W3 " + figureCPU.name:          {Ratio: 0.36},
	"json " + figureCPU.name:        {Ratio: 0.20},
	"W1 " + figureBytes.name:        {Most: 1.3},
	"W2 " + figureBytes.name:        {Most: 3.5},
	"W3 " + figureBytes.name:        {Most: 1.25},
	"W1 " + figurePeak.name:         {Most: 130},
	"W2 " + figurePeak.name:         {Most: 220},
	"q1 " + figureP50.name:          {Ratio: 0.5},
	"q2 " + figureP50.name:          {Ratio: 0.6},
	"q3 " + figureP50.name:          {Ratio: 0.6},
	"q4 " + figureP50.name:          {Ratio: 0.5},
	"q5 " + figureP50.name:          {Ratio: 0.6},
	"q6 " + figureP50.name:          {Ratio: 0.5},
	"q1 busy " + figureP50.name:     {Ratio: 0.5},
	"q2 busy " + figureP50.name:     {Ratio: 0.6},
	"q3 busy " + figureP50.name:     {Ratio: 0.6},
	"q4 busy " + figureP50.name:     {Ratio: 0.5},
	"q5 busy " + figureP50.name:     {Ratio: 0.6},
	"q6 busy " + figureP50.name:     {Ratio: 0.5},
	"max 1m head " + figureP50.name: {Ratio: 0.8},
	"max 1m " + figureP50.name:      {Ratio: 0.5},
	"avg 7m " + figureP50.name:      {Ratio: 0.5},
	"sum 1h " + figureP50.name:      {Ratio: 0.3},
	"kill " + figureReady.name:      {Most: 1},
	"open " + figureReady.name:      {Most: 1},

	"tenants, points " + besideAlone:    {Most: 1.2},
	"tenants, questions " + besideAlone: {Most: 1.2},
	"tenants, answers " + besideAlone:   {Most: 1.2},

	"tenants, points " + besideElsewhere:    {Most: 1.2},
	"tenants, questions " + besideElsewhere: {Most: 1.2},
	"tenants, answers " + besideElsewhere:   {Most: 1.2},

	"W1s " + figureCPU.name:         {Most: 8},
	"W1s " + figureOwnPeak.name:     {Most: 200},
	"W1s json " + figureCPU.name:    {Most: 7},
	"live " + figureCPU.name:        {Ratio: 0.5, Peer: kairosTarget{}.name()},
	"q1 cold " + figureP50.name:     {Most: 3},
	"q2 cold " + figureP50.name:     {Most: 3},
	"q3 cold " + figureP50.name:     {Most: 90},
	"q4 cold " + figureP50.name:     {Most: 90},
	"q5 cold " + figureP50.name:     {Most: 90},
	"q6 cold " + figureP50.name:     {Most: 3},
	"q3 again " + figureP50.name:    {Most: 10},
	"q4 again " + figureP50.name:    {Most: 10},
	"q5 again " + figureP50.name:    {Most: 10},
	"one row " + figureP50.name:     {Most: 10},
	"three rows " + figureP50.name:  {Most: 20},
	"two entries " + figureP50.name: {Most: 24},
}

// peer is the target that Ratio is about.
func (g goal) peer() string {
	if g.Peer == "" {
		return victoriaTarget{}.name()
	}
	return g.Peer
}

// judge compares v, which has the given ratio to the goal's peer, with g.
func (g goal) judge(v, ratio float64) string {
	verdict := func(v, most float64) string {
		if v <= most {
			return "reached"
		}
		return "missed"
	}
	text := ""
	if g.Most != 0 {
		text = fmt.Sprintf("%g %s", g.Most, verdict(v, g.Most))
	}
	if g.Ratio == 0 || ratio == 0 {
		return text
	}
	return strings.TrimPrefix(fmt.Sprintf("%s, ratio %.2f %s", text, g.Ratio, verdict(ratio, g.Ratio)), ", ")
}

// column adds a target to the tables, if it is not there.
func (b *book) column(target string) {
	if !slices.Contains(b.targets, target) {
		b.targets = append(b.targets, target)
	}
}

// title sets the title of the rows of a stage.
func (b *book) title(stage, about string) {
	if b.titles == nil {
		b.titles = make(map[string]string)
	}
	b.titles[stage] = about
}

// add records one value.
func (b *book) add(stage string, f figure, target string, round int, v float64) {
	r := b.row(stage, f)
	if r.Values[target] == nil {
		r.Values[target] = make(map[int]float64)
	}
	r.Values[target][round] = v
}

func (b *book) row(stage string, f figure) *row {
	for _, r := range b.Rows {
		if r.Stage == stage && r.Figure == f.name {
			return r
		}
	}
	r := &row{Stage: stage, Figure: f.name, Unit: f.unit, Values: make(map[string]map[int]float64)}
	if goal, ok := goals[stage+" "+f.name]; ok {
		r.Goal = &goal
	}
	b.Rows = append(b.Rows, r)
	return r
}

// fail records a failure and prints it at once.
func (b *book) fail(stage, target string, err error) {
	fmt.Fprintf(os.Stderr, "%s of %s failed: %v\n", stage, target, err)
	b.Failures = append(b.Failures, failure{stage, target, err.Error()})
}

// sum computes medians and ratios.
func (b *book) sum() {
	for _, r := range b.Rows {
		r.Medians, r.Ratios = make(map[string]float64), make(map[string]float64)
		for target, values := range r.Values {
			r.Medians[target] = median(valuesOf(values))
			ours := b.ours(r)
			if target == ours {
				continue
			}
			if ratio, ok := pairedRatio(r.Values[ours], values); ok {
				r.Ratios[target] = ratio
			}
		}
	}
}

// pairedRatio is the median of the ratios of the rounds in which both took
// part. ok is false if there is no such round, or if a ratio is not a number.
func pairedRatio(ours, theirs map[int]float64) (ratio float64, ok bool) {
	var ratios []float64
	for round, v := range theirs {
		if own, both := ours[round]; both && v != 0 {
			ratios = append(ratios, own/v)
		}
	}
	if len(ratios) == 0 {
		return 0, false
	}
	return median(ratios), true
}

func valuesOf(m map[int]float64) (values []float64) {
	for _, v := range m {
		values = append(values, v)
	}
	return values
}

func median(values []float64) float64 { return quantile(values, 0.5) }

// quantile is the smallest value that at least the fraction q of all values does
// not exceed. For an even number of values, the median is the mean of the two in
// the middle. Without values, it is NaN.
func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	switch {
	case n == 0:
		return math.NaN()
	case q == 0.5 && n%2 == 0:
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[max(int(math.Ceil(q*float64(n)))-1, 0)]
}

// print writes the rows of all stages as tables.
func (b *book) print(out io.Writer) error {
	b.sum()
	text := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i, r := range b.Rows {
		ours := b.ours(r)
		if i == 0 || b.Rows[i-1].Stage != r.Stage {
			b.printTitle(text, r.Stage, ours)
		}
		fmt.Fprintf(text, "  %s\t%s", r.Figure, r.Unit)
		for _, t := range b.targets {
			fmt.Fprintf(text, "\t%s", format(r.Medians, t))
			if t != ours {
				fmt.Fprintf(text, "\t%s", format(r.Ratios, t))
			}
		}
		if r.Goal != nil {
			fmt.Fprintf(text, "\t%s", r.Goal.judge(r.Medians[ours], r.Ratios[r.Goal.peer()]))
		}
		fmt.Fprintln(text)
	}
	if err := text.Flush(); err != nil {
		return err
	}
	for _, f := range b.Failures {
		line, _, _ := strings.Cut(f.Error, "\n")
		fmt.Fprintf(out, "FAILED %s, %s: %s\n", f.Stage, f.Target, line)
	}
	return nil
}

// ours is the column of Varve in a row: varve, or varve-cassandra in stages
// that do not measure the embedded store.
func (b *book) ours(r *row) string {
	for _, t := range b.targets {
		if r.Values[t] != nil {
			return t
		}
	}
	return varveName
}

func (b *book) printTitle(text *tabwriter.Writer, stage, ours string) {
	text.Flush() // columns are aligned within a stage
	fmt.Fprintf(text, "\n%s: %s\n", stage, b.titles[stage])
	fmt.Fprint(text, "  \t")
	for _, t := range b.targets {
		fmt.Fprintf(text, "\t%s", t)
		if t != ours {
			fmt.Fprint(text, "\tratio")
		}
	}
	fmt.Fprintln(text, "\tgoal")
}

// format formats a value with about three digits, "" if there is none.
func format(values map[string]float64, target string) string {
	v, ok := values[target]
	switch size := math.Abs(v); {
	case !ok:
		return "-"
	case size >= 100 || v == 0:
		return fmt.Sprintf("%.0f", v)
	case size >= 10:
		return fmt.Sprintf("%.1f", v)
	case size >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// save writes everything as JSON.
func (b *book) save(path string) error {
	b.sum()
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
