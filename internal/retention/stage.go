package retention

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Stage keeps one point per Step for the time Keep. Both are in seconds and positive.
type Stage struct{ Step, Keep int64 }

// Points is the maximum number of points that a series has in the stage.
func (s Stage) Points() int64 { return s.Keep / s.Step }

// String formats the stage as carbon does, with the largest unit that is exact.
func (s Stage) String() string { return spanText(s.Step) + ":" + spanText(s.Keep) }

// Stages are ordered from the finest to the coarsest.
type Stages []Stage

func (s Stages) String() string {
	texts := make([]string, len(s))
	for i, stage := range s {
		texts[i] = stage.String()
	}
	return strings.Join(texts, ",")
}

const (
	// MaxStages bounds the stages of a policy.
	MaxStages = 16

	maxSeconds = 1000 * year
)

// Units in seconds. There is no month: m is a minute.
const (
	minute = 60
	hour   = 60 * minute
	day    = 24 * hour
	week   = 7 * day
	year   = 365 * day
)

var units = []struct {
	letter  byte
	seconds int64
}{{'y', year}, {'w', week}, {'d', day}, {'h', hour}, {'m', minute}, {'s', 1}}

// ParseStages parses the stages of a policy, in carbon's form (10s:6h,60s:30d, or with
// a number of points as the time, 60:1440) or in BigGraphite's (2160*10s:43200*60s).
// Each step must divide the next one, and each stage must be kept longer than the
// previous one.
func ParseStages(text string) (Stages, error) {
	parse, separator := parseCarbon, ","
	if strings.Contains(text, "*") {
		parse, separator = parseBigGraphite, ":"
	}
	var stages Stages
	for part := range strings.SplitSeq(text, separator) {
		if len(stages) == MaxStages {
			return nil, fmt.Errorf("retention %.200q has more than %d stages", text, MaxStages)
		}
		stage, err := parse(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("retention %.200q: %w", text, err)
		}
		if last := len(stages) - 1; last >= 0 && stages[last].Step == stage.Step && separator == ":" {
			stages = stages[:last] // BigGraphite allows equal steps; the stage that is kept longer includes the other
		}
		stages = append(stages, stage)
	}
	if separator == "," { // carbon accepts any order
		slices.SortStableFunc(stages, func(a, b Stage) int { return cmp.Compare(a.Step, b.Step) })
	}
	if err := stages.check(); err != nil {
		return nil, fmt.Errorf("retention %.200q: %w", text, err)
	}
	return stages, nil
}

// A MisfitError says why stages do not fit together.
type MisfitError struct{ reason string }

func (e *MisfitError) Error() string { return e.reason }

func (s Stages) check() error {
	misfit := func(format string, args ...any) error { return &MisfitError{fmt.Sprintf(format, args...)} }
	for i, stage := range s {
		if stage.Keep < stage.Step {
			return misfit("the stage with a step of %s is kept for less than one step, so it holds no point", spanText(stage.Step))
		}
		if i == 0 {
			continue
		}
		finer := s[i-1]
		switch {
		case stage.Step <= finer.Step || stage.Step%finer.Step != 0:
			return misfit("the step of stage %v must be a multiple of that of stage %v", stage, finer)
		case stage.Keep <= finer.Keep:
			return misfit("stage %v must be kept longer than stage %v", stage, finer)
		case finer.Keep < stage.Step:
			return misfit("stage %v is kept for less than one step of stage %v, which is computed from it", finer, stage)
		}
	}
	return nil
}

// parseCarbon parses STEP:KEEP. A KEEP without a unit is a number of points.
func parseCarbon(text string) (Stage, error) {
	stepText, keepText, found := strings.Cut(text, ":")
	if !found {
		return Stage{}, fmt.Errorf("%.40q is not of the form STEP:TIME, such as 60s:30d", text)
	}
	step, _, err := parseSpan(strings.TrimSpace(stepText))
	if err != nil {
		return Stage{}, err
	}
	keep, hasUnit, err := parseSpan(strings.TrimSpace(keepText))
	if err != nil {
		return Stage{}, err
	}
	if !hasUnit {
		return ofPoints(keep, step)
	}
	return Stage{Step: step, Keep: keep / step * step}, nil
}

// parseBigGraphite parses POINTS*STEPs. A suffix _0 or _aggr is accepted: it says what
// the stage holds, which follows from its position.
func parseBigGraphite(text string) (Stage, error) {
	text = strings.TrimSuffix(strings.TrimSuffix(text, "_0"), "_aggr")
	pointsText, stepText, _ := strings.Cut(text, "*")
	stepText, hasUnit := strings.CutSuffix(stepText, "s")
	points, err := parseNumber(pointsText)
	step, stepErr := parseNumber(stepText)
	if err := errors.Join(err, stepErr); err != nil || !hasUnit {
		return Stage{}, fmt.Errorf("%.40q is not of the form POINTS*SECONDSs, such as 1440*60s", text)
	}
	return ofPoints(points, step)
}

func ofPoints(points, step int64) (Stage, error) {
	if points > maxSeconds/step {
		return Stage{}, fmt.Errorf("%d points of %s are more than %d years", points, spanText(step), maxSeconds/year)
	}
	return Stage{Step: step, Keep: points * step}, nil
}

// parseSpan parses a number of seconds, or a number with a letter as its unit.
func parseSpan(text string) (seconds int64, hasUnit bool, err error) {
	factor := int64(1)
	for _, u := range units {
		if strings.HasSuffix(text, string(u.letter)) {
			factor, hasUnit, text = u.seconds, true, text[:len(text)-1]
			break
		}
	}
	n, err := parseNumber(text)
	if err != nil {
		return 0, false, fmt.Errorf("%w with one of the units s, m, h, d, w, y", err)
	}
	if n > maxSeconds/factor {
		return 0, false, fmt.Errorf("%s is more than %d years", text, maxSeconds/year)
	}
	return n * factor, hasUnit, nil
}

// parseNumber parses a positive decimal number.
func parseNumber(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 || n > maxSeconds || text[0] == '+' {
		return 0, fmt.Errorf("%.40q is not a positive whole number", text)
	}
	return n, nil
}

// StageName names a stage by its step in ms, 0 for samples as they were sent.
func StageName(stepMS int64) string {
	switch {
	case stepMS == 0:
		return "raw"
	case stepMS%1000 != 0: // rules have whole seconds
		return strconv.FormatInt(stepMS, 10) + "ms"
	}
	return spanText(stepMS / 1000)
}

// spanText formats seconds with the largest unit that is exact.
func spanText(seconds int64) string {
	for _, u := range units {
		if seconds%u.seconds == 0 {
			return strconv.FormatInt(seconds/u.seconds, 10) + string(u.letter)
		}
	}
	return strconv.FormatInt(seconds, 10) + "s"
}
