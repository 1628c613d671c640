package kairos

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"varve/internal/clip"
	"varve/internal/ingest/jsontext"
	"varve/internal/kairos/agg"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/suggest"
)

// Deletes are read strictly, queries leniently as in KairosDB: a filter that Varve
// ignores makes an answer too large, but a delete destroys data. So a member that is
// unknown, misspelt or repeated, a filter without values, and a null in a member
// that selects points are answered 400, and nothing is deleted.

// The members that a delete may have. Members of queries that select no points are
// allowed, since KairosDB's clients and pages send whole queries.
var (
	deleteMembers = []string{
		"metrics", "start_absolute", "start_relative", "end_absolute", "end_relative", "time_zone", "cache_time", "plugins",
	}
	deleteMetricMembers = []string{
		"name", "tags", "exclude_tags", "aggregators", "group_by", "limit", "order", "alias", "plugins",
	}
	deleteSpanMembers = []string{"value", "unit"}
)

// selecting are the members that bound a delete. A null in one of them means that the
// client has lost a value, not that it wants to delete more.
var selecting = []string{"metrics", "start_absolute", "start_relative", "end_absolute", "end_relative", "name", "tags", "value", "unit"}

// strictDelete returns the fault of a request that is a valid query but not a valid
// delete, nil if it is both.
func strictDelete(top *value) error {
	if err := strictMembers(top, "query", deleteMembers); err != nil {
		return err
	}
	for _, name := range []string{"start_relative", "end_relative"} {
		if span := top.member(name); span != nil {
			if err := strictMembers(span, "query."+name, deleteSpanMembers); err != nil {
				return err
			}
		}
	}
	metrics := top.member("metrics").items
	if len(metrics) == 0 {
		return badRequest("query.metric[] must have a size of at least 1")
	}
	for i := range metrics {
		at := fmt.Sprintf("query.metric[%d]", i)
		if err := strictMembers(&metrics[i], at, deleteMetricMembers); err != nil {
			return err
		}
		if err := strictTags(metrics[i].member("tags"), at+".tags"); err != nil {
			return err
		}
	}
	return nil
}

// strictMembers checks the names of an object's members.
func strictMembers(v *value, at string, known []string) error {
	for i := range v.members {
		name := v.members[i].name
		switch {
		case !slices.Contains(known, name):
			return v.members[i].value.fault(fmt.Sprintf("%s.%s is not known to deletes, which are strict and take %s; nothing was deleted",
				at, clipName(name), strings.Join(known, ", ")) + suggest.Hint(name, known))
		case v.members[i].value.isNull() && slices.Contains(selecting, name):
			return v.members[i].value.fault(fmt.Sprintf("%s.%s may not be null in a delete; leave it out to delete without it; nothing was deleted", at, name))
		}
	}
	return strictOnce(v, at)
}

// strictTags refuses a filter without values, which would select every value. A
// delete without any filter is valid: it is how clients delete a metric.
func strictTags(tags *value, at string) error {
	if tags == nil {
		return nil
	}
	for i := range tags.members {
		if m := &tags.members[i]; m.value.kind == jsontext.Array && len(m.value.items) == 0 {
			return m.value.fault(fmt.Sprintf("%s.%s has no values; leave the tag out to delete whatever its value is; nothing was deleted", at, clipName(m.name)))
		}
	}
	return strictOnce(tags, at)
}

// strictOnce refuses an object with a repeated member.
func strictOnce(v *value, at string) error {
	if v.repeated == nil {
		return nil
	}
	return v.fault(fmt.Sprintf("%s.%s is given more than once; nothing was deleted", at, clipName(*v.repeated)))
}

// clippedBytes is how many bytes of a client's text a message or a log line repeats.
const clippedBytes = 256

func clipName(name string) string { return clip.Text(name, clippedBytes) }

// readingDelete returns the handler of a request whose body is a delete: it reads the body, and
// f answers.
func (a *API) readingDelete(f func(w http.ResponseWriter, r *http.Request, q *agg.Query, deletions []store.Deletion) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := noParameters(r); err != nil {
			return err
		}
		text, err := a.readBody(r)
		if err != nil {
			return err
		}
		defer text.Close()
		req, err := a.parse(text, r)
		if err == nil {
			err = locate(req.top, strictDelete(req.top))
		}
		if err != nil {
			return err
		}
		deletions := make([]store.Deletion, len(req.Metrics))
		for i, m := range req.Metrics {
			deletions[i] = store.Deletion{Metric: m.Metric, Matchers: m.Matchers, Range: req.Range}
		}
		return f(w, r, &req.Query, deletions)
	}
}

// previewDelete answers how many series and points a delete would delete.
func (a *API) previewDelete(w http.ResponseWriter, r *http.Request, q *agg.Query, deletions []store.Deletion) error {
	return a.answer(w, r, func(out *answer) error {
		return a.run(r.Context(), q, out, func(run *agg.Run) error { return encodePreview(out, run, deletions) })
	})
}

func encodePreview(out *answer, run *agg.Run, deletions []store.Deletion) error {
	out.buf = append(out.buf, `{"metrics":[`...)
	for i, d := range deletions {
		run.WorkOn(i, d.Metric)
		t, err := run.Tally(store.Selection{Metric: d.Metric, Matchers: d.Matchers, Range: d.Range})
		if err != nil {
			return err
		}
		if i > 0 {
			out.buf = append(out.buf, ',')
		}
		out.buf = append(out.buf, `{"name":`...)
		out.buf = appendText(out.buf, d.Metric)
		out.buf = fmt.Appendf(out.buf, `,"series":%d,"points":%d}`, t.Series, t.Samples)
		if err := out.advance(); err != nil {
			return err
		}
	}
	out.buf = append(out.buf, `]}`...)
	return nil
}

func (a *API) deleteMetric(w http.ResponseWriter, r *http.Request) error {
	if err := noParameters(r); err != nil {
		return err
	}
	if err := noSelection(r); err != nil {
		return err
	}
	return a.deletePoints(w, r, nil, []store.Deletion{{Metric: r.PathValue("name"), Range: model.AllTime}})
}

// noParameters refuses a delete with query parameters: deletes take none, and a
// client that sends ?host=a does not want to delete the other hosts.
func noParameters(r *http.Request) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	return badRequest("deletes take no parameters in the address, but got " + strconv.Quote(clipName(r.URL.RawQuery)) +
		"; a part of a metric is deleted by POST /api/v1/datapoints/delete; nothing was deleted")
}

// noSelection refuses a body in the delete of a whole metric, except the {} of
// python-kairosdb.
func noSelection(r *http.Request) error {
	const most = 4 << 10 // bytes of white space around the body
	body, err := io.ReadAll(io.LimitReader(r.Body, most+1))
	if err != nil {
		return badRequest("reading the request: " + err.Error())
	}
	if text := strings.TrimSpace(string(body)); len(body) <= most && (text == "" || text == "{}") {
		return nil
	}
	return badRequest("the delete of a metric takes no body: it deletes all points; a part of a metric is deleted by POST /api/v1/datapoints/delete; nothing was deleted")
}

func (a *API) deletePoints(w http.ResponseWriter, r *http.Request, _ *agg.Query, deletions []store.Deletion) error {
	began, err := a.engine.Delete(r.Context(), r.RemoteAddr, func(ctx context.Context) error { return a.store.Delete(ctx, deletions...) })
	if began {
		a.logDeletions(r, deletions, err)
	}
	if err == nil {
		writeDone(w)
	}
	return err
}

// loggedDeletions is how many metrics of one request the log names.
const loggedDeletions = 100

// logDeletions logs which client deleted which points. There is no other record of it.
func (a *API) logDeletions(r *http.Request, deletions []store.Deletion, err error) {
	if a.Log == nil {
		return
	}
	for i, d := range deletions {
		if i == loggedDeletions {
			a.Log.Info("the same delete request names further metrics", "count", len(deletions)-i, "client", r.RemoteAddr)
			return
		}
		attrs := []any{"metric", clipName(d.Metric), "tags", selectorText(d.Matchers), "start", boundText(d.Range.StartMS, model.AllTime.StartMS),
			"end", boundText(d.Range.EndMS, model.AllTime.EndMS), "client", r.RemoteAddr}
		if err != nil {
			a.Log.Info("delete was not completed; some points may be deleted", append(attrs, "error", err)...)
			continue
		}
		a.Log.Info("points deleted", attrs...)
	}
}

// boundText is one end of a range, "all" at the end of time.
func boundText(ms, end int64) string {
	if ms == end {
		return "all"
	}
	return strconv.FormatInt(ms, 10)
}

// selectorText formats filters as the client sent them, clipped.
func selectorText(matchers []model.Matcher) string {
	var b strings.Builder
	for i, m := range matchers {
		if b.Len() > clippedBytes {
			fmt.Fprintf(&b, " and %d tags more", len(matchers)-i)
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(clipName(m.Tag) + "=")
		for k := range len(m.Values) + len(m.Patterns) {
			if b.Len() > 4*clippedBytes {
				b.WriteString("|...")
				break
			}
			if k > 0 {
				b.WriteByte('|')
			}
			if k < len(m.Values) {
				b.WriteString(clipName(m.Values[k]))
			} else {
				b.WriteString(clipName(m.Patterns[k-len(m.Values)].String()))
			}
		}
	}
	return b.String()
}
