package comparison

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"varve/internal/units"
)

// A Report is the result of a comparison.
type Report struct {
	A, B           Seen
	StartMS, EndMS int64
	Seed           uint64

	Metrics int   // metrics that both sides have
	Tags    int   // metrics whose tags were compared
	Queries int   // queries sent
	Points  int64 // points in equal answers
	Settled int   // differences that had disappeared at a later check
	Listed  int   // names and tags that only one side lists, but whose points are equal

	Skipped     map[string]int // what was not compared, and how often
	Cut         []string       // why not everything was compared, each reason once
	Differences []Difference   // the first maxDifferences
	Count       int            // of differences

	paths  bool // metrics are Graphite's paths, which have no tags
	asks   bool // queries were requested
	broken bool // an error ended the comparison
}

// Seen is one of the servers.
type Seen struct{ URL, Version string }

// A Difference is one query that the servers answer differently.
type Difference struct {
	Text    string
	Query   json.RawMessage
	Group   json.RawMessage // the first group or series that differs
	PointsA int
	PointsB int
	Differ  int    // points that differ
	First   []Pair // at most maxPairs of them
}

// maxDifferences is the number of differences that are reported in full.
const maxDifferences = 20

// maxReasons is the number of distinct reasons for skipping something.
const maxReasons = 20

func (r *Report) add(q any, d *Difference) {
	r.Count++
	if len(r.Differences) == maxDifferences {
		return
	}
	text, err := json.Marshal(q)
	if err != nil {
		panic(err) // texts and numbers always marshal
	}
	d.Query = text
	r.Differences = append(r.Differences, *d)
}

func (r *Report) skip(why string) {
	if r.Skipped == nil {
		r.Skipped = map[string]int{}
	}
	if _, ok := r.Skipped[why]; !ok && len(r.Skipped) >= maxReasons {
		why = "other reasons"
	}
	r.Skipped[why]++
}

// unsettled counts differences that could not be checked again.
func (r *Report) unsettled(n int) {
	if n > 0 {
		r.Count += n
		r.cut(fmt.Sprintf("%d differences were seen once and not checked again", n))
	}
}

func (r *Report) cut(why string) {
	if !slices.Contains(r.Cut, why) {
		r.Cut = append(r.Cut, why)
	}
}

// Equal reports whether no difference was found.
func (r *Report) Equal() bool { return r.Count == 0 }

// Nothing returns why a comparison without differences proves nothing. It is empty if the
// comparison does prove something.
func (r *Report) Nothing() string {
	switch {
	case r.Count > 0:
		return ""
	case r.Metrics == 0 && r.paths:
		return "the servers have no path in common; see --metrics"
	case r.Metrics == 0:
		return "the servers have no metric in common; see --metrics"
	case r.asks && r.Points == 0:
		return fmt.Sprintf("no query found a point between %s and %s; choose another or a longer time range with --from and --to", timeText(r.StartMS), timeText(r.EndMS))
	}
	return ""
}

// WriteText writes the report as text. Each query is JSON on a line of its own, so that it
// can be copied.
func (r *Report) WriteText(w io.Writer) error {
	p := &printer{w: w}
	p.printf("a          %s  %s\n", r.A.URL, r.A.Version)
	p.printf("b          %s  %s\n", r.B.URL, r.B.Version)
	p.printf("range      %s to %s, seed %d\n", timeText(r.StartMS), timeText(r.EndMS), r.Seed)
	if r.paths {
		p.printf("compared   %s, %d queries with %s\n", units.Count(r.Metrics, "path"), r.Queries, units.Count(r.Points, "point"))
	} else {
		p.printf("compared   %s, tags of %d, %d queries with %s\n", units.Count(r.Metrics, "metric"), r.Tags, r.Queries, units.Count(r.Points, "point"))
	}
	if r.Listed > 0 && r.paths {
		p.printf("known      %d paths are listed by one side only, but have equal points or none in this time range\n", r.Listed)
	} else if r.Listed > 0 {
		p.printf("known      %d names or tags are listed by one side only, but have equal points: KairosDB keeps names of deleted points\n", r.Listed)
	}
	if r.Settled > 0 {
		p.printf("settled    %d differences had disappeared at a later check\n", r.Settled)
	}
	for _, why := range slices.Sorted(maps.Keys(r.Skipped)) {
		p.printf("left out   %d: %s\n", r.Skipped[why], why)
	}
	for _, why := range r.Cut {
		p.printf("cut short  %s\n", why)
	}
	for i := range r.Differences {
		p.difference(i+1, &r.Differences[i])
	}
	if r.Count > len(r.Differences) {
		p.printf("\n%d more differences\n", r.Count-len(r.Differences))
	}
	switch {
	case !r.Equal():
		p.printf("\n%s\n", units.Count(r.Count, "difference"))
	case r.broken && r.Nothing() == "":
		p.printf("no differences before an error ended the comparison\n")
	case r.Nothing() != "":
		p.printf("nothing was compared\n")
	default:
		p.printf("no differences\n")
	}
	return p.err
}

func (p *printer) difference(n int, d *Difference) {
	p.printf("\ndifference %d: %s\n", n, d.Text)
	p.printf("  query     %s\n", d.Query)
	if d.Group == nil {
		return
	}
	p.printf("  %-9s %s\n", d.kind(), d.Group)
	p.printf("  points    a %d, b %d; %d differ\n", d.PointsA, d.PointsB, d.Differ)
	if len(d.First) > 0 {
		text, err := json.Marshal(d.First)
		if err != nil {
			text = fmt.Appendf(nil, "%v", err)
		}
		p.printf("  first     %s\n", text)
	}
}

// kind returns the label of a group. Over Graphite's API a group is the name of a series.
func (d *Difference) kind() string {
	if d.Group[0] == '"' {
		return "series"
	}
	return "group"
}

// A printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

func timeText(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }
