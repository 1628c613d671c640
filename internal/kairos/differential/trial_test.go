package differential

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"time"
)

// settleLimit is how long the original may take to make writes and deletes visible,
// which it does asynchronously.
const settleLimit = 6 * time.Second

// settlePause is the first pause before both sides are queried again.
const settlePause = 15 * time.Millisecond

// besideLimit is the same for new points of a shared keyspace. On a busy machine Varve
// takes long to write hundreds of new rows, which it shows at once.
const besideLimit = 20 * time.Second

// A point is one value to be stored.
type point struct {
	Metric string
	Tags   map[string]string
	Type   string // long, double or string: 1.3.0 cannot be given the complex one
	TimeMS int64
	Value  any
	Round  int // rounds are written one after the other; later ones overwrite
}

func (p point) series() string { return encode([]any{p.Metric, p.Tags, p.Type}) }

// A trial is everything that leads to one comparison.
type trial struct {
	Points   []point
	Compact  bool       // Varve moves the points into files
	Deletes  []question // carried out before the question
	Question question
}

func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // these values are the generator's own
	}
	return string(text)
}

// load writes points under a new name, all to both sides, or each to one of the sides
// that share a keyspace, and waits until both answer the same for all.
func (p *pair) load(points []point, compact bool) (name, difference string, err error) {
	p.loads++
	name = fmt.Sprintf("dx%06x", p.loads)
	rounds := 0
	for _, point := range points {
		rounds = max(rounds, point.Round+1)
	}
	for round := range rounds {
		for side, points := range p.shares(points) {
			body := ingestBody(points, round)
			if body == "[]" {
				continue
			}
			a, err := side.send("POST", "datapoints", body, name)
			if err != nil {
				return name, "", err
			}
			if a.status != 204 {
				return name, "", fmt.Errorf("the points are refused by %s: %d %s", side.url, a.status, a.text)
			}
		}
		limit := settleLimit
		if p.model != nil {
			limit = besideLimit
		}
		if difference, err = p.agree(rawQuestion(points), name, limit); difference != "" || err != nil {
			return name, difference, err
		}
	}
	if compact {
		err = p.store.Compact(context.Background())
	}
	return name, "", err
}

// shares returns the points that each side is sent.
func (p *pair) shares(points []point) map[*peer][]point {
	if p.model == nil {
		return map[*peer][]point{p.varve: points, p.kairos: points}
	}
	shares := map[*peer][]point{p.model: points}
	for _, point := range points {
		side := p.varve
		if odd(point.series(), point.TimeMS, point.Round) {
			side = p.kairos
		}
		shares[side] = append(shares[side], point)
	}
	return shares
}

// odd is a deterministic coin toss: the same for the same values.
func odd(values ...any) bool {
	h := fnv.New64a()
	fmt.Fprint(h, values...)
	return h.Sum64()>>32&1 == 1
}

// ingestBody puts the points of a round into one request, a metric object for
// each series.
func ingestBody(points []point, round int) string {
	at := map[string]int{}
	metrics := []map[string]any{}
	for _, point := range points {
		if point.Round != round {
			continue
		}
		i, known := at[point.series()]
		if !known {
			i = len(metrics)
			at[point.series()] = i
			metrics = append(metrics, map[string]any{"name": point.Metric, "tags": point.Tags, "type": point.Type, "datapoints": []any{}})
		}
		metrics[i]["datapoints"] = append(metrics[i]["datapoints"].([]any), []any{point.TimeMS, point.Value})
	}
	return encode(metrics)
}

// agree queries until both sides answer the same, in whatever order of results, or the
// time limit is reached.
func (p *pair) agree(q question, name string, limit time.Duration) (difference string, err error) {
	deadline := time.Now().Add(limit)
	for pause := settlePause; ; pause = min(2*pause, 16*settlePause) {
		varve, kairos, err := p.both(q, name)
		if err != nil {
			return "", err
		}
		difference := compareRaw(varve, kairos)
		if p.model != nil && difference == "" {
			if difference, err = p.modelDiffers(q, name, varve, compareRaw); err != nil {
				return "", err
			}
		}
		if difference == "" || time.Now().After(deadline) {
			return difference, nil
		}
		time.Sleep(pause)
	}
}

// modelDiffers queries the model too, and returns how Varve's answer differs.
func (p *pair) modelDiffers(q question, name string, varve answer, compare func(varve, model answer) string) (string, error) {
	model, err := p.model.ask(q, name)
	if err != nil {
		return "", err
	}
	difference := compare(varve, model)
	if difference != "" {
		difference = "with the embedded store for KairosDB: " + difference
	}
	return difference, nil
}

// rawQuestion queries all points, series by series.
func rawQuestion(points []point) question {
	keys := map[string]map[string]bool{}
	low, high := int64(math.MaxInt64), int64(math.MinInt64)
	for _, point := range points {
		low, high = min(low, point.TimeMS), max(high, point.TimeMS)
		if keys[point.Metric] == nil {
			keys[point.Metric] = map[string]bool{}
		}
		for key := range point.Tags {
			keys[point.Metric][key] = true
		}
	}
	if low < 0 {
		low -= rowMS // see the listed difference before-1970
	}
	metrics := []any{}
	for _, metric := range slices.Sorted(mapKeys(keys)) {
		metrics = append(metrics, map[string]any{"name": metric, "group_by": []any{
			map[string]any{"name": "tag", "tags": slices.Sorted(mapKeys(keys[metric]))},
		}})
	}
	return question{Path: "datapoints/query", Body: map[string]any{"start_absolute": low, "end_absolute": high, "metrics": metrics}}
}

// compareRaw compares answers whose results may be in any order.
func compareRaw(varve, kairos answer) string {
	if varve.status != 200 || kairos.status != 200 {
		return compareAnswers(varve, kairos, tolerance)
	}
	dropEmpty(varve.body)
	dropEmpty(kairos.body)
	return comparer{tolerance: tolerance, unordered: []string{"results"}}.compare("", "", varve.body, kairos.body)
}

func compareAnswers(varve, kairos answer, tolerance float64) string {
	if varve.status != kairos.status {
		return fmt.Sprintf("status: Varve %d %.300s, KairosDB %d %.300s", varve.status, varve.text, kairos.status, kairos.text)
	}
	return comparer{tolerance: tolerance, unordered: []string{"errors"}}.compare("", "", varve.body, kairos.body)
}

// A verdict is the result of a question.
type verdict struct {
	difference    string // empty when the answers agree
	listed        string // name of the listed difference that explains it
	varve, kairos answer
}

func (v verdict) unexplained() bool { return v.difference != "" && v.listed == "" }

// judge queries both sides and compares. For a while Varve may still show what KairosDB
// has deleted.
func (p *pair) judge(tr *trial, name string) (verdict, error) {
	if tr.Question.Path == "datapoints/delete" {
		return p.judgeDelete(tr, name)
	}
	for deadline := time.Now().Add(believed); ; time.Sleep(settlePause) {
		late := p.model == nil || len(tr.Deletes) == 0 || time.Now().After(deadline)
		if v, err := p.judgeQuestion(tr, name); late || err != nil || !v.unexplained() {
			return v, err
		}
	}
}

func (p *pair) judgeQuestion(tr *trial, name string) (verdict, error) {
	var v verdict
	// Questions relative to the present may meet a midnight.
	for range 2 {
		theirs, undo := rewrite(tr.Question)
		varve, kairos, err := p.each(tr.Question, theirs, name)
		if err != nil {
			return v, err
		}
		undo(&varve, &kairos)
		v = verdict{varve: varve, kairos: kairos}
		if strings.HasSuffix(tr.Question.Path, "datapoints/query") {
			dropEmpty(varve.body)
			dropEmpty(kairos.body)
		}
		if strings.HasPrefix(tr.Question.Path, "metricnames") {
			if p.model != nil { // what one has saved, all of the keyspace list
				dropSaved(&varve)
				dropSaved(&kairos)
			}
			v.difference = comparer{unordered: []string{"results"}}.compare("", "", varve.body, kairos.body)
		} else {
			v.difference = compareAnswers(varve, kairos, tolerance)
		}
		if v.difference == "" {
			break
		}
	}
	if differs, err := p.judgeByModel(tr, name, v.varve); differs != "" || err != nil {
		return verdict{difference: differs, varve: v.varve, kairos: v.kairos}, err
	}
	if saved := savedBy(tr.Question); v.difference == "" && saved != nil && v.varve.status == 200 {
		var err error
		if v.difference, err = p.agree(*saved, name, settleLimit); err != nil {
			return v, err
		}
	}
	if v.difference == "" {
		return v, nil
	}
	v.listed = p.listed(tr, v.varve, v.kairos)
	return v, nil
}

// judgeByModel queries the model, if there is one, and returns how Varve's answer
// differs. The only accepted difference is the order in which sums are added.
func (p *pair) judgeByModel(tr *trial, name string, varve answer) (string, error) {
	// Which series a question for tags lists depends on the precision of a store's
	// index. A name whose points KairosDB deleted may stay. Over Cassandra a limit
	// applies to each row.
	coarse := severalRows(tr) && anyMetric(tr.Question, limits) || strings.HasSuffix(tr.Question.Path, "/tags") || len(tr.Deletes) > 0 && tr.Question.Body == nil
	if p.model == nil || coarse {
		return "", nil
	}
	return p.modelDiffers(tr.Question, name, varve, func(varve, model answer) string {
		difference := compareWithModel(varve, model)
		if difference != "" && sumOrder(tr, varve, model) {
			return ""
		}
		return difference
	})
}

// dropSaved removes the metrics of save_as from an answer.
func dropSaved(a *answer) {
	object, _ := a.body.(map[string]any)
	if list, ok := object["results"].([]any); ok {
		object["results"] = slices.DeleteFunc(list, func(name any) bool {
			text, _ := name.(string)
			return strings.HasPrefix(text, stand+".s")
		})
	}
}

// listed returns the name of the deviation that explains a difference.
func (p *pair) listed(tr *trial, varve, kairos answer) string {
	if p.tagIndexed && ofTagIndex.matches(tr, varve, kairos) {
		return ofTagIndex.name
	}
	if p.model != nil { // one keyspace, the same rows
		return listed(tr, varve, kairos, "limit-per-row")
	}
	return listed(tr, varve, kairos)
}

// mixesRegex reports whether a filter of a tag has both values and patterns.
func mixesRegex(metric map[string]any) bool {
	tags, _ := metric["tags"].(map[string]any)
	for _, values := range tags {
		list, _ := values.([]any)
		if n := regexes(values); n > 0 && n < len(list) {
			return true
		}
	}
	return false
}

// savedBy returns a query for what a question has written by save_as, or nil. The range
// is wide enough for buckets of some years.
func savedBy(q question) *question {
	var saved *question
	anyMetric(q, func(m map[string]any) bool {
		return hasAggregator(m, func(a map[string]any) bool {
			to, ok := a["metric_name"].(string)
			start, absolute := q.Body["start_absolute"].(int64)
			if ok && absolute {
				saved = &question{Path: q.Path, Body: map[string]any{
					"start_absolute": start - 32*lengths["years"], "end_absolute": start + 50*lengths["years"],
					"metrics": []any{map[string]any{"name": to}},
				}}
			}
			return ok
		})
	})
	return saved
}

// compareWithModel compares the answers of two Varve servers.
func compareWithModel(varve, model answer) string {
	dropSaved(&varve)
	dropSaved(&model)
	dropEmpty(varve.body)
	dropEmpty(model.body)
	each(varve.body, func(_ int, r map[string]any) { delete(r, "alias") })
	each(model.body, func(_ int, r map[string]any) { delete(r, "alias") })
	return comparer{tolerance: tolerance, unordered: []string{"errors", "results"}}.compare("", "", varve.body, model.body)
}

// delete deletes on both sides, or on one of those that share a keyspace.
func (p *pair) delete(tr *trial, name string) (varve, kairos answer, err error) {
	if p.model == nil {
		return p.both(tr.Question, name)
	}
	side := p.varve
	if odd(encode(tr.Question.Body), len(tr.Deletes)) {
		side = p.kairos
	}
	if varve, err = p.model.ask(tr.Question, name); err != nil {
		return varve, kairos, err
	}
	kairos, err = side.ask(tr.Question, name)
	return varve, kairos, err
}

// judgeDelete deletes and compares the remaining points.
func (p *pair) judgeDelete(tr *trial, name string) (verdict, error) {
	varve, kairos, err := p.delete(tr, name)
	if err != nil {
		return verdict{}, err
	}
	v := verdict{varve: varve, kairos: kairos}
	if v.difference = compareAnswers(varve, kairos, tolerance); v.difference == "" {
		v.difference, err = p.agree(rawQuestion(tr.Points), name, settleLimit)
	}
	if v.difference != "" {
		v.listed = p.listed(tr, varve, kairos)
	}
	return v, err
}

// replay repeats a whole trial, under a new name.
func (p *pair) replay(tr *trial) (verdict, error) {
	name, difference, err := p.load(tr.Points, tr.Compact)
	if err != nil || difference != "" {
		return verdict{difference: difference}, err
	}
	before := *tr
	for _, d := range tr.Deletes {
		before.Question = d
		if v, err := p.judgeDelete(&before, name); err != nil || v.difference != "" {
			return v, err
		}
	}
	return p.judge(tr, name)
}
