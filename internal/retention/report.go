package retention

import "fmt"

// A Report says how the series of a path is kept, and by which rules.
type Report struct {
	Path        string        `json:"path"`
	Rule        string        `json:"rule,omitempty"` // empty: none matches
	Source      string        `json:"source,omitempty"`
	Why         string        `json:"why,omitempty"`     // the conditions of the rule
	Pattern     string        `json:"pattern,omitempty"` // of the rule
	Stages      []StageReport `json:"stages"`            // empty: samples are kept as they were sent
	Aggregation string        `json:"aggregation,omitempty"`
	Method      Method        `json:"method"`
	Factor      float64       `json:"x_files_factor"`
	By          string        `json:"method_by"`          // where method and factor come from
	Sketches    bool          `json:"sketches,omitempty"` // buckets keep percentiles
}

// A StageReport is a stage as text.
type StageReport struct {
	Step   string `json:"step"`
	Keep   string `json:"keep"`
	Points int64  `json:"points"`
}

// Report returns the rules for a path.
func (b *Book) Report(path string) Report {
	s := ParsePath(path)
	p := b.Of(s)
	r := Report{Path: path, Stages: []StageReport{}, Aggregation: p.Aggregation.Name, Method: p.Aggregation.Method, Factor: p.Aggregation.XFilesFactor}
	rule := b.rule(s)
	switch {
	case rule.aggregation() != nil:
		r.By = "the rule"
	case r.Aggregation != "":
		r.By = "[" + r.Aggregation + "] of storage-aggregation.conf"
	default:
		r.By = "the default"
	}
	if rule == nil {
		return r
	}
	r.Rule, r.Source, r.Why, r.Pattern = rule.Name, rule.Source(), rule.Why(), rule.Pattern
	for _, s := range rule.Stages {
		r.Stages = append(r.Stages, StageReport{spanText(s.Step), spanText(s.Keep), s.Points()})
	}
	r.Sketches = p.Sketches() && len(r.Stages) > 1
	return r
}

func (r Report) String() string {
	if r.Rule == "" {
		return fmt.Sprintf("%s\n  no rule matches: every sample is kept, and Graphite's API uses a step of one minute\n", r.Path)
	}
	text := fmt.Sprintf("%s\n  rule [%s] of %s: %s\n", r.Path, r.Rule, r.Source, r.Why)
	if len(r.Stages) == 0 {
		text += "  every sample                 for ever\n"
	}
	for i, s := range r.Stages {
		what := "buckets of " + s.Step
		switch {
		case i == 0:
			what = "samples, one for each " + s.Step
		case r.Sketches:
			what += " with percentiles"
		}
		text += fmt.Sprintf("  %-28s for %s\n", what, s.Keep)
	}
	return text + fmt.Sprintf("  method %s; a bucket needs %g of its points; set by %s\n", r.Method, r.Factor, r.By)
}
