package kairos

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"varve/internal/kairos/agg"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
)

// namesPage is how many names are held in memory at once.
const namesPage = 10_000

var namesParameters = []string{"prefix", "pattern", "filter", "start", "end", "after", "limit"}

// A namesRequest holds the parameters of a names endpoint. KairosDB has only prefix,
// and only for metric names.
type namesRequest struct {
	store.NamesQuery // Limit is 0 for all
	filter           query.NamesFilter
	filtered         bool
}

// names lists metric names, tag names or tag values, ascending.
func (a *API) names(kind store.NameKind) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		q, err := a.parser.namesRequest(kind, r.URL.Query())
		if err != nil {
			return err
		}
		return a.answer(w, r, func(out *answer) error {
			return a.asQuery(r, out, func(run *agg.Run) error {
				encode := encodeNames
				if q.filtered {
					encode = encodeFiltered
				}
				if err := encode(run, out, &q); err != nil {
					return err
				}
				return out.pack()
			})
		})
	}
}

// asQuery runs a request for names as a query: it takes a slot, can be killed, and has
// a query's limits. A store may have very many names, and matching them may take
// minutes.
func (a *API) asQuery(r *http.Request, out *answer, f func(*agg.Run) error) error {
	return a.run(r.Context(), &agg.Query{Request: query.Request{Text: r.URL.RequestURI(), Client: r.RemoteAddr}}, out, f)
}

// encodeNames writes names in pages, up to the limit.
func encodeNames(run *agg.Run, out *answer, request *namesRequest) (err error) {
	q := request.NamesQuery
	limit, left := q.Limit, q.Limit
	list := nameList{answer: out}
	list.begin()
	for more := true; more; {
		q.Limit = namesPage
		if limit > 0 {
			q.Limit = min(left, namesPage)
		}
		var names []string
		if names, more, err = run.NamesPage(q); err != nil {
			return err
		}
		if err := list.add(names); err != nil {
			return err
		}
		if len(names) > 0 {
			q.After = names[len(names)-1]
		}
		if left -= len(names); limit > 0 && left <= 0 {
			list.end(q.After, more)
			return nil
		}
	}
	list.end("", false)
	return nil
}

// encodeFiltered writes the names of series that pass a filter.
func encodeFiltered(run *agg.Run, out *answer, q *namesRequest) error {
	names, more, err := run.Names(q.NamesQuery, q.filter)
	if err != nil {
		return err
	}
	list := nameList{answer: out}
	list.begin()
	if err := list.add(names); err != nil {
		return err
	}
	last := ""
	if len(names) > 0 {
		last = names[len(names)-1]
	}
	list.end(last, more)
	return nil
}

// A nameList is an answer of names under construction.
type nameList struct {
	*answer
	some bool
}

func (l *nameList) begin() { l.buf = append(l.buf, `{"results":[`...) }

func (l *nameList) add(names []string) error {
	for i, name := range names {
		if l.some {
			l.buf = append(l.buf, ',')
		}
		l.some = true
		l.buf = appendText(l.buf, name)
		if i%encodedAtOnce == encodedAtOnce-1 {
			if err := l.advance(); err != nil {
				return err
			}
		}
	}
	return l.advance()
}

// end writes where the next page begins, if there is one.
func (l *nameList) end(last string, more bool) {
	l.buf = append(l.buf, ']')
	if more {
		l.buf = append(l.buf, `,"next":`...)
		l.buf = appendText(l.buf, last)
	}
	l.buf = append(l.buf, '}')
}

// namesRequest reads the parameters of a names endpoint.
func (p parser) namesRequest(kind store.NameKind, params url.Values) (namesRequest, error) {
	q := namesRequest{filter: query.NamesFilter{Range: model.AllTime}}
	q.Kind, q.Prefix, q.After = kind, params.Get("prefix"), params.Get("after")
	if kind != store.MetricNames {
		q.Metric = params.Get("metric")
	}
	if kind == store.TagValues {
		q.Tag = params.Get("tag")
	}
	p.programs = new(int)
	if expr := params.Get("pattern"); expr != "" {
		var err error
		if q.Pattern, err = p.newPattern(expr); err != nil {
			return q, badRequest("pattern: " + err.Error())
		}
	}
	if text := params.Get("limit"); text != "" {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 0 {
			return q, badRequest("limit must be a whole number from 0, for all, to 2147483647, not " + strconv.Quote(clipName(text)))
		}
		q.Limit = int(n)
	}
	return q, p.namesFilter(&q, params)
}

func (p *parser) namesFilter(q *namesRequest, params url.Values) error {
	for name, to := range map[string]*int64{"start": &q.filter.Range.StartMS, "end": &q.filter.Range.EndMS} {
		text := params.Get(name)
		if text == "" {
			continue
		}
		ms, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return badRequest(name + " must be a time in milliseconds, not " + strconv.Quote(clipName(text)))
		}
		*to, q.filtered = ms, true
	}
	if q.filter.Range.EndMS < q.filter.Range.StartMS {
		return badRequest("end must not be before start")
	}
	byTag := map[string]int{}
	for _, text := range params["filter"] {
		tag, value, ok := strings.Cut(text, "=")
		if !ok || tag == "" || value == "" {
			return badRequest("filter must be tag=value, not " + strconv.Quote(clipName(text)))
		}
		i, known := byTag[tag]
		if !known {
			i = len(q.filter.Matchers)
			byTag[tag] = i
			q.filter.Matchers = append(q.filter.Matchers, model.Matcher{Tag: tag})
		}
		if err := p.addValue(&q.filter.Matchers[i], value); err != nil {
			return badRequest("filter " + strconv.Quote(clipName(text)) + ": " + err.Error())
		}
		q.filtered = true
	}
	return nil
}

// addValue adds a literal or a regular expression to a matcher.
func (p *parser) addValue(m *model.Matcher, text string) error {
	expr, isRegex := strings.CutPrefix(text, p.regexPrefix)
	if p.regexPrefix == "" || !isRegex {
		m.Values = append(m.Values, text)
		return nil
	}
	pattern, err := p.newPattern(expr)
	if err == nil {
		m.Patterns = append(m.Patterns, pattern)
	}
	return err
}

// maxPrograms bounds the instructions of all patterns of one request: 5 to 10 MB. A pattern counts as at least
// leastProgram of them, since one of a single character takes more than a kilobyte.
const (
	maxPrograms  = 50_000
	leastProgram = 12
)

func (p *parser) newPattern(expr string) (*model.Pattern, error) {
	pattern, err := model.NewPattern(expr)
	if err != nil {
		return nil, err
	}
	if *p.programs += max(pattern.Size(), leastProgram); *p.programs > maxPrograms {
		return nil, fmt.Errorf("the patterns of one request have at least %d instructions together, which is more than %d; use smaller repetitions, or send several requests",
			*p.programs, maxPrograms)
	}
	return pattern, nil
}
