package differential

import (
	"encoding/json"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"
)

var (
	queriesFlag = flag.Int("differential.queries", 150, "number of questions")
	seedFlag    = flag.Uint64("differential.seed", 1, "what is drawn follows from this")
	worldFlag   = flag.Uint64("differential.world", 0, "ask about this world only; 0 is all")
	failures    = flag.Int("differential.failures", 3, "stop after so many differences that are not listed; each is reduced")
)

// questionsPerWorld is how many questions are asked about one set of points.
const questionsPerWorld = 30

// progressStep is the number of questions between progress reports of a long run.
const progressStep = 500

// timeToEnd is how long before the end of -timeout a run reports its results.
const timeToEnd = time.Minute

// deletesPerWorld come after them, each followed by some questions.
const deletesPerWorld = 3

// A run counts the results of all questions.
type run struct {
	*pair
	asked, failed int
	listed        map[string]int
	statuses      map[int]int

	seconds bool // the keyspace holds whole seconds only
}

func TestDifferential(t *testing.T) {
	newRun(startPair(t)).all(*queriesFlag)
}

func newRun(p *pair) *run {
	return &run{pair: p, listed: map[string]int{}, statuses: map[int]int{}}
}

// all runs a number of questions.
func (r *run) all(questions int) {
	r.t.Helper()
	began := time.Now()
	worlds := uint64(0)
	for number := uint64(1); r.asked < questions && r.failed < *failures; number++ {
		if end, ok := r.t.Deadline(); ok && time.Until(end) < timeToEnd {
			r.t.Errorf("time is up after %d of %d questions", r.asked, questions)
			break
		}
		if *worldFlag != 0 && number != *worldFlag {
			if number > *worldFlag {
				break
			}
			continue
		}
		before := r.asked
		r.explore(number)
		worlds++
		if r.asked/progressStep > before/progressStep {
			r.t.Logf("%d questions about %d worlds in %v; %d differ as listed, %d otherwise", r.asked, worlds, time.Since(began).Round(time.Second), r.explained(), r.failed)
		}
	}
	explained := r.explained()
	r.t.Logf("seed %d: %d questions about %d worlds in %v; %d agree, %d differ as listed %v, %d differ otherwise; statuses %v",
		*seedFlag, r.asked, worlds, time.Since(began).Round(time.Second), r.asked-explained-r.failed, explained, r.listed, r.failed, r.statuses)
	if explained*10 > r.asked*2 && r.failed == 0 {
		r.t.Errorf("%d of %d answers are explained by the list: what it says is too wide to prove anything", explained, r.asked)
	}
}

// explained is how many answers differed as listed.
func (r *run) explained() int {
	n := 0
	for _, count := range r.listed {
		n += count
	}
	return n
}

// explore makes one world and queries it.
func (r *run) explore(number uint64) {
	g := newMaker(*seedFlag, number)
	w := g.world()
	if r.seconds {
		w.wholeSeconds()
	}
	name, difference, err := r.load(w.points, w.compact)
	if err != nil {
		r.t.Fatalf("world %d: %v", number, err)
	}
	tr := trial{Points: w.points, Compact: w.compact, Question: rawQuestion(w.points)}
	if difference != "" {
		r.fail(number, tr, verdict{difference: difference})
		return
	}
	for range questionsPerWorld {
		tr.Question = r.draw(g, w)
		if !r.one(number, tr, name) {
			return
		}
	}
	for range deletesPerWorld {
		tr.Question = r.trimmed(g.delete(w))
		listed := r.explained()
		if !r.one(number, tr, name) || r.explained() > listed {
			return // from here on the two have different points
		}
		tr.Deletes = append(tr.Deletes, tr.Question)
		for range 3 {
			tr.Question = r.draw(g, w)
			if !r.one(number, tr, name) {
				return
			}
		}
	}
}

// one runs one question and reports whether to continue with this world.
func (r *run) one(number uint64, tr trial, name string) bool {
	r.asked++
	v, err := r.judge(&tr, name)
	if err != nil {
		r.t.Fatalf("world %d: %v\n%s", number, err, describe(tr))
	}
	r.statuses[v.kairos.status]++
	if v.listed != "" {
		r.listed[v.listed]++
	}
	if v.unexplained() {
		r.fail(number, tr, v)
		return tr.Question.Path != "datapoints/delete" && r.failed < *failures
	}
	return true
}

// fail reduces an example and reports it.
func (r *run) fail(number uint64, tr trial, v verdict) {
	r.t.Helper()
	r.failed++
	again, err := r.replay(&tr)
	if err != nil || !again.unexplained() {
		r.t.Errorf("seed %d, world %d: %s\nIt did not come again with the same points under another name (%v).\n%s", *seedFlag, number, v.difference, err, describe(tr))
		return
	}
	first := again.difference
	tr, v = r.shrink(tr, again)
	r.t.Errorf("seed %d, world %d: %s\nreduced: %s\n%s\nVarve    %d %.1500s\nKairosDB %d %.1500s", *seedFlag, number, first, v.difference, describe(tr),
		v.varve.status, v.varve.text, v.kairos.status, v.kairos.text)
}

// describe describes a trial so that it can be repeated by hand.
func describe(tr trial) string {
	var b strings.Builder
	rounds := 0
	for _, p := range tr.Points {
		rounds = max(rounds, p.Round+1)
	}
	for round := range rounds {
		if body := ingestBody(tr.Points, round); body != "[]" {
			fmt.Fprintf(&b, "POST datapoints %.3000s\n", body)
		}
	}
	if tr.Compact {
		b.WriteString("(Varve's points are in files)\n")
	}
	for _, q := range append(append([]question{}, tr.Deletes...), tr.Question) {
		fmt.Fprintf(&b, "%s", q.Path)
		if q.Body != nil {
			text, err := json.Marshal(q.Body)
			if err != nil {
				panic(err)
			}
			fmt.Fprintf(&b, " %s", text)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
