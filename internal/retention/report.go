package retention

import "fmt"

// A Report says how the series of a path is kept, and why.
type Report struct {
	Path        string        `json:"path"`
	Rule        string        `json:"rule,omitempty"`    // empty: none matches
	Pattern     string        `json:"pattern,omitempty"` // of the rule
	Stages      []StageReport `json:"stages"`            // empty: samples are kept as they were sent
	Aggregation string        `json:"aggregation,omitempty"`
	Method      Method        `json:"method"`
	Factor      float64       `json:"x_files_factor"`
}

// A StageReport is a stage for people.
type StageReport struct {
	Step   string `json:"step"`
	Keep   string `json:"keep"`
	Points int64  `json:"points"`
}

// Report says which rules a path has.
func (b *Book) Report(path string) Report {
	p := b.Of(path)
	r := Report{Path: path, Stages: []StageReport{}, Aggregation: p.Aggregation.Name, Method: p.Aggregation.Method, Factor: p.Aggregation.XFilesFactor}
	if p.Rule == nil {
		return r
	}
	r.Rule, r.Pattern = p.Rule.Name, p.Rule.Pattern
	for _, s := range p.Rule.Stages {
		r.Stages = append(r.Stages, StageReport{spanText(s.Step), spanText(s.Keep), s.Points()})
	}
	return r
}

func (r Report) String() string {
	aggregation := "the default"
	if r.Aggregation != "" {
		aggregation = "[" + r.Aggregation + "]"
	}
	if r.Rule == "" {
		return fmt.Sprintf("%s\n  no rule of storage-schemas.conf matches: samples are kept as they were sent, and read every minute\n", r.Path)
	}
	text := fmt.Sprintf("%s\n  rule [%s], whose pattern %s is found in the path\n", r.Path, r.Rule, r.Pattern)
	for i, s := range r.Stages {
		what := "buckets of " + s.Step
		if i == 0 {
			what = "samples, one for each " + s.Step
		}
		text += fmt.Sprintf("  %-28s for %s\n", what, s.Keep)
	}
	return text + fmt.Sprintf("  method %s if %g of the points are there, by %s\n", r.Method, r.Factor, aggregation)
}
