package rollup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"varve/internal/clip"
	"varve/internal/ingest"
	"varve/internal/kairos/agg"
	"varve/internal/store"
)

// A Parser parses the parts of a task that are in KairosDB's query language.
type Parser interface {
	// ParseQuery parses a query. Its error has the methods Messages() []string, the
	// faults, and Path() string, their place in the query.
	ParseQuery(text []byte) (agg.Query, error)

	// ParseZone finds a time zone by name.
	ParseZone(name string) (*time.Location, bool)
}

// A task is a roll-up task as it is stored.
type task struct {
	id       string
	name     string
	json     string // as stored and returned: one line, id first
	interval agg.Sampling
	rollups  []rollup
	memory   int64   // see memoryOf
	unnamed  trouble // results whose names are refused
}

// A rollup is one query of a task and where its results go.
type rollup struct {
	saveAs string
	ttl    uint32         // seconds, 0 = for ever
	zone   *time.Location // nil: that of the query
	query  json.RawMessage

	sources []source // by metric of the query
	flows   []flow
}

// A source is one metric of a roll-up's query.
type source struct {
	index  int // in the query
	metric string
	key    string // of the watermark
	grid   *agg.Grid
}

// sources yields the sources of all roll-ups of a task.
func (t *task) sources() iter.Seq2[*rollup, *source] {
	return func(yield func(*rollup, *source) bool) {
		for i := range t.rollups {
			r := &t.rollups[i]
			for k := range r.sources {
				if !yield(r, &r.sources[k]) {
					return
				}
			}
		}
	}
}

// A fault is an error in a request; each message goes into the answer.
type fault struct {
	messages []string
	path     string // path of the wrong member, "" if unknown
}

func (f *fault) Error() string { return strings.Join(f.messages, "; ") }

// Messages are the texts of the answer.
func (f *fault) Messages() []string { return f.messages }

// Path is the path of the wrong member, "" if unknown.
func (f *fault) Path() string { return f.path }

// HTTPStatus is the status of the answer.
func (f *fault) HTTPStatus() int { return http.StatusBadRequest }

func badRequest(messages ...string) error { return &fault{messages: messages} }

// maxID bounds the ids that clients choose, in bytes.
const maxID = 256

// A member is a member of a JSON object.
type member struct {
	name string
	raw  json.RawMessage
}

// membersOf splits an object into its members in the order written. Of members with the
// same name the last value counts.
func membersOf(text []byte) ([]member, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, badRequest("Not a JSON Object: " + clip.Text(text, clippedBytes))
	}
	var members []member
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, badRequest("roll-up task: " + err.Error())
		}
		m := member{name: t.(string)}
		if err := d.Decode(&m.raw); err != nil {
			return nil, badRequest("roll-up task: " + err.Error())
		}
		members = append(members, m)
	}
	return members, nil
}

// clippedBytes is how many bytes of a client's text a message repeats.
const clippedBytes = 100

// find returns the value of a member, nil if it is absent or null.
func find(members []member, name string) (found json.RawMessage) {
	for _, m := range members {
		if m.name == name {
			found = m.raw
		}
	}
	if string(found) == "null" {
		return nil
	}
	return found
}

// withHint adds a message for each member whose name is another spelling of a known
// one. KairosDB's texts say saveAs and executionInterval where it reads save_as and
// execution_interval.
func withHint(messages []string, members []member, known ...string) []string {
	plain := strings.NewReplacer("_", "", "-", "", " ", "")
	for _, m := range members {
		for _, name := range known {
			if m.name != name && strings.EqualFold(plain.Replace(m.name), plain.Replace(name)) {
				messages = append(messages, fmt.Sprintf("%q is not read; the member is called %s", clip.Text(m.name, clippedBytes), name))
			}
		}
	}
	return messages
}

// text returns a scalar as text. ok is false for objects and arrays.
func text(raw json.RawMessage) (s string, ok bool) {
	switch {
	case len(raw) == 0 || raw[0] == '{' || raw[0] == '[':
		return "", false
	case raw[0] == '"':
		return s, json.Unmarshal(raw, &s) == nil
	}
	return string(raw), true
}

// integer parses a whole number, written as a number or as text.
func integer(raw json.RawMessage) (int64, bool) {
	s, ok := text(raw)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// parseTask parses a task's JSON. id, if not empty, replaces the id in it; if there is
// neither, fresh makes one.
func parseTask(p Parser, body []byte, id string, fresh func() string) (*task, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, body); err != nil {
		return nil, badRequest("roll-up task: " + err.Error())
	}
	members, err := membersOf(compact.Bytes())
	if err != nil {
		return nil, err
	}
	t := &task{id: id}
	own, hasOwn := text(find(members, "id"))
	if t.id == "" {
		t.id = own
	}
	if t.id == "" {
		t.id = fresh()
	}
	if len(t.id) > maxID {
		return nil, badRequest(fmt.Sprintf("id may have at most %d bytes", maxID))
	}
	if err := t.read(p, members); err != nil {
		return nil, err
	}
	t.json = compact.String()
	if !hasOwn || own != t.id {
		t.json = withID(members, t.id)
	}
	t.memory = t.memoryOf()
	return t, nil
}

// memoryOf estimates the bytes that a task takes for as long as it exists.
func (t *task) memoryOf() int64 {
	// The texts of queries are kept beside that of the task, once more as parsed.
	const texts, perSource, perFlow, perTag = 4, 500, 200, 100
	n := texts * len(t.json)
	for i := range t.rollups {
		r := &t.rollups[i]
		n += len(r.sources) * perSource
		for k := range r.flows {
			f := &r.flows[k]
			n += perFlow
			if k > 0 && f.context == r.flows[k-1].context {
				continue // a flow of a save_as aggregator shares the matchers and tags of the flow before it
			}
			n += len(f.tags)*perTag + store.MatchersMemory(f.matchers)
		}
	}
	return int64(n)
}

// withID writes an object with the id put first, as KairosDB does.
func withID(members []member, id string) string {
	quoted, err := json.Marshal(id)
	if err != nil {
		panic(err) // texts always marshal
	}
	b := append([]byte(`{"id":`), quoted...)
	for _, m := range members {
		if m.name == "id" {
			continue
		}
		name, err := json.Marshal(m.name)
		if err != nil {
			panic(err)
		}
		b = append(append(append(append(b, ','), name...), ':'), m.raw...)
	}
	return string(append(b, '}'))
}

// Limits of a task that a client stores. A task that KairosDB has stored may exceed
// them, but runs no more often than every minInterval.
const (
	minInterval = time.Second
	maxMetrics  = 200 // metrics of all roll-ups of a task; each is a query
)

// accept checks a task that a client wants to store.
func (t *task) accept() error {
	if t.interval.Unit == agg.Milliseconds && t.interval.Value < minInterval.Milliseconds() {
		return badRequest(fmt.Sprintf("executionInterval is %d milliseconds, must be at least %s; runs follow each other at this interval, whatever the sampling is",
			t.interval.Value, minInterval))
	}
	n := 0
	for _, r := range t.rollups {
		n += len(r.sources)
	}
	if n > maxMetrics {
		return badRequest(fmt.Sprintf("rollups have %d metrics in their queries, may have at most %d together; make several tasks", n, maxMetrics))
	}
	return nil
}

func (t *task) read(p Parser, members []member) error {
	var messages []string
	name := find(members, "name")
	switch t.name, _ = text(name); {
	case name == nil:
		messages = append(messages, "name may not be null")
	case t.name == "":
		messages = append(messages, "name may not be empty")
	}
	interval := find(members, "execution_interval")
	if interval == nil {
		messages = append(messages, "executionInterval may not be null")
	}
	if messages != nil {
		return badRequest(withHint(messages, members, "name", "execution_interval")...)
	}
	var err error
	if t.interval, err = readInterval(interval); err != nil {
		return err
	}
	var rollups []json.RawMessage
	for _, m := range members { // a task without roll-ups is valid, as in KairosDB
		if m.name == "rollups" && (m.raw[0] != '[' || json.Unmarshal(m.raw, &rollups) != nil) {
			return badRequest("rollups must be an array, not " + clip.Text(m.raw, clippedBytes))
		}
	}
	// The context of KairosDB's messages grows from one roll-up to the next.
	context := ""
	for j, raw := range rollups {
		context += fmt.Sprintf("rollup[%d]", j)
		r, err := readRollup(p, raw, j, &context)
		if f := (*fault)(nil); errors.As(err, &f) && f.path != "" {
			f.path = fmt.Sprintf("rollups[%d].%s", j, f.path)
		}
		if err != nil {
			return err
		}
		t.rollups = append(t.rollups, r)
	}
	return nil
}

// readInterval parses an execution interval.
func readInterval(raw json.RawMessage) (s agg.Sampling, err error) {
	members, err := membersOf(raw)
	if err != nil {
		return s, badRequest("executionInterval must be an object with value and unit")
	}
	var ok bool
	if s.Value, ok = integer(find(members, "value")); !ok || s.Value <= 0 || s.Value > 1<<31-1 {
		return s, badRequest("executionInterval.value must be a whole number from 1 to 2147483647")
	}
	unit, _ := text(find(members, "unit"))
	if s.Unit, err = agg.ParseUnit(unit); err != nil {
		return s, badRequest("executionInterval.unit " + strconv.Quote(clip.Text(unit, clippedBytes)) + " must be one of " + strings.Join(agg.UnitNames(), ","))
	}
	return s, nil
}

// readRollup parses the j-th roll-up of a task.
func readRollup(p Parser, raw json.RawMessage, j int, context *string) (r rollup, err error) {
	members, err := membersOf(raw)
	if err != nil {
		return r, badRequest(*context + " must be an object")
	}
	saveAs := find(members, "save_as")
	switch r.saveAs, _ = text(saveAs); {
	case saveAs == nil:
		return r, badRequest(withHint([]string{*context + ".saveAs may not be null"}, members, "save_as")...)
	case r.saveAs == "":
		return r, badRequest(*context + ".saveAs may not be empty")
	}
	if raw := find(members, "time_zone"); raw != nil {
		zone, ok := text(raw)
		if ok {
			r.zone, ok = p.ParseZone(zone)
		}
		if !ok {
			return r, badRequest(*context + ".time_zone " + clip.Text(raw, clippedBytes) + " is not a time zone")
		}
	}
	if ttl := find(members, "ttl"); ttl != nil {
		n, ok := integer(ttl)
		if !ok {
			return r, badRequest(*context + ".ttl must be a number of seconds")
		}
		var bad *ingest.Fault
		if r.ttl, bad = ingest.CheckTTL(n); bad != nil {
			return r, badRequest(*context + "." + bad.Text)
		}
	}
	if r.query = find(members, "query"); r.query == nil {
		return r, badRequest(withHint([]string{*context + ".query may not be null"}, members, "query")...)
	}
	req, err := p.ParseQuery(r.query)
	if err != nil {
		return r, within(*context, err)
	}
	digest := sha256.New()
	digest.Write(raw)
	digest.Write([]byte{0})
	for k := range req.Metrics {
		*context += fmt.Sprintf(".query[%d]", k)
		if err := checkMetric(&req.Metrics[k], *context); err != nil {
			return r, err
		}
		r.sources = append(r.sources, source{index: k, metric: req.Metrics[k].Metric, key: keyOf(digest, k), grid: r.grid(&req, k)})
		r.flows = append(r.flows, flowsOf(&req.Metrics[k], r.saveAs, fmt.Sprintf("rollup[%d].query[%d]", j, k))...)
	}
	return r, nil
}

// keyOf is the key of the k-th metric of a roll-up: the first 8 bytes of the SHA-256 of
// the roll-up's text, a zero byte and k. digest has hashed all before k.
func keyOf(digest hash.Hash, k int) string {
	own, err := digest.(hash.Cloner).Clone()
	if err != nil {
		panic(err) // hashes of the standard library always clone
	}
	own.Write(strconv.AppendInt(nil, int64(k), 10))
	return hex.EncodeToString(own.Sum(nil)[:8])
}

// grid is the grid of the k-th metric of a query.
func (r *rollup) grid(req *agg.Query, k int) *agg.Grid {
	last := lastRange(&req.Metrics[k])
	return agg.NewGrid(last.Sampling, r.zoneOf(req, last))
}

// zoneOf is the zone of a range aggregator: the roll-up's, else its own, else the
// query's.
func (r *rollup) zoneOf(req *agg.Query, a *agg.Range) *time.Location {
	switch {
	case r.zone != nil:
		return r.zone
	case a.Zone != nil:
		return a.Zone
	}
	return req.Zone
}

func checkMetric(m *agg.MetricQuery, context string) error {
	last := lastRange(m)
	if last == nil {
		return badRequest(context + ".aggregator At least one aggregator must be a range aggregator")
	}
	if last.Sampling.Value <= 0 {
		return badRequest(context + ".aggregator sampling.value must be greater than 0")
	}
	return nil
}

// A rangeStep is a range aggregator.
type rangeStep interface {
	agg.Step
	Bucketing() *agg.Range
}

// rangesOf are the range aggregators of a metric.
func rangesOf(m *agg.MetricQuery) (all []*agg.Range) {
	for _, s := range m.Steps {
		if r, ok := s.(rangeStep); ok {
			all = append(all, r.Bucketing())
		}
	}
	return all
}

// lastRangeStep is a metric's last step that is a range aggregator, nil if there is
// none.
func lastRangeStep(m *agg.MetricQuery) (last agg.Step) {
	for _, s := range m.Steps {
		if r, ok := s.(rangeStep); ok {
			last = r
		}
	}
	return last
}

// lastRange is the last range aggregator of a metric, nil if there is none.
func lastRange(m *agg.MetricQuery) *agg.Range {
	all := rangesOf(m)
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// within prefixes the messages of a query's error with the roll-up.
func within(context string, err error) error {
	var faults interface{ Messages() []string }
	if !errors.As(err, &faults) {
		return err
	}
	f := &fault{}
	var located interface{ Path() string }
	if errors.As(err, &located) && located.Path() != "" {
		f.path = "query." + located.Path()
	}
	for _, m := range faults.Messages() {
		f.messages = append(f.messages, context+"."+m)
	}
	return f
}
