package graphite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"varve/internal/clip"
	"varve/internal/httpapi"
	"varve/internal/ingest"
	"varve/internal/ingest/carbon"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/retention"
	"varve/internal/store"
)

// The index of the store replaces Graphite's tag database: it has every series with tags
// and samples, so clients need not register series. Series without tags are not listed.

// tagRoutes lists the routes below /tags.
func (a *API) tagRoutes(prefix string, both func(path string, h formHandler)) []httpapi.Route {
	both("/tags/findSeries", a.findSeries)
	both("/tags/autoComplete/tags", a.completeTags)
	both("/tags/autoComplete/values", a.completeValues)
	return []httpapi.Route{
		httpapi.On(http.MethodGet, prefix+"/tags", httpapi.Read, a.withForm(a.listTags)).ByMetric(),
		httpapi.On(http.MethodGet, prefix+"/tags/{tag}", httpapi.Read, a.withForm(a.listValues)).ByMetric(),
		httpapi.On(http.MethodPost, prefix+"/tags/tagSeries", httpapi.Write, a.withForm(tagSeries)).ByMetric(),
		httpapi.On(http.MethodPost, prefix+"/tags/tagMultiSeries", httpapi.Write, a.withForm(tagMultiSeries)).ByMetric(),
		httpapi.On(http.MethodPost, prefix+"/tags/delSeries", httpapi.Delete, a.withForm(a.delSeries)).ByMetric(),
	}
}

// refuseJSON answers an error as graphite-web does below /tags and /events.
func refuseJSON(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	answer(w, nil, map[string]string{"error": clip.Text(text, shownError)})
}

// named returns the values of a parameter, whose name may end in [].
func named(form url.Values, name string) []string { return append(form[name], form[name+"[]"]...) }

// limitOf returns the value of the parameter limit: the value of without if it is missing
// or empty, math.MaxInt if it is negative.
func limitOf(form url.Values, without int) (int, error) {
	text := strings.TrimSpace(lastOf(form, "limit"))
	if text == "" {
		return without, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("the limit is not a whole number: %.40q", text)
	}
	if n < 0 {
		return math.MaxInt, nil
	}
	return n, nil
}

// filterAndLimit parses the parameters of lists of tags and of values.
func filterAndLimit(form url.Values) (*model.Pattern, int, error) {
	filter, err := filterOf(form)
	if err != nil {
		return nil, 0, err
	}
	most, err := limitOf(form, math.MaxInt)
	return filter, most, err
}

// filterOf returns the pattern of the parameter filter, which is anchored only at the
// beginning.
func filterOf(form url.Values) (*model.Pattern, error) {
	p, err := model.NewPattern(fromBeginning(lastOf(form, "filter")))
	if err != nil {
		return nil, fmt.Errorf("the filter is not a regular expression: %w", err)
	}
	return p, nil
}

// tagged calls f for all series with tags that satisfy the expressions. Without
// expressions, these are all series with tags.
func (a *API) tagged(s *query.Session, expressions []string, f func(query.Number) error) error {
	src := &source{session: s, book: a.shelf.Book()}
	lease := s.Lease()
	defer lease.Release()
	if len(expressions) == 0 {
		expressions = []string{"name!="}
	}
	numbers, err := src.byTags(expressions, &lease)
	for i := 0; err == nil && i < len(numbers); i++ {
		if numbers[i].Tags.Len() > 0 {
			err = f(numbers[i])
		}
	}
	return err
}

// A tally counts, for each text with a prefix, the series that have it.
type tally struct {
	session *query.Session
	prefix  string
	most    int // limit of the texts that list adds
	counts  map[string]int
}

func newTally(s *query.Session) *tally { return &tally{session: s, counts: map[string]int{}} }

func (t *tally) add(text string) error {
	if !strings.HasPrefix(text, t.prefix) {
		return nil
	}
	t.counts[text]++
	if t.counts[text] > 1 {
		return nil
	}
	return t.session.Reserve(entryBytes + int64(len(text)))
}

// list adds the first names that match q, at most t.most.
func (t *tally) list(q store.NamesQuery) error {
	if t.most <= 0 {
		return nil
	}
	q.Prefix = t.prefix
	if t.most < math.MaxInt {
		q.Limit = t.most
	}
	names, _, err := t.session.NamesPage(q)
	for i := 0; err == nil && i < len(names); i++ {
		err = t.add(names[i])
	}
	return err
}

func (t *tally) sorted() []string { return slices.Sorted(maps.Keys(t.counts)) }

// valueOf returns the value of a tag. The tag "name" is the metric.
func valueOf(n query.Number, tag string) string {
	if tag == "name" {
		return n.Metric
	}
	v, _ := n.Tags.Get(tag)
	return v
}

// A listedTag is a tag in the answer of /tags.
type listedTag struct {
	Tag string `json:"tag"`
}

// tagPage is how many tags are read before those that match are charged.
const tagPage = 1000

// tagsOf returns the first tags that match, ascending, at most the number in most. Each counts as
// memory of the query, with its text in the answer. Every series with tags also has the tag "name".
func tagsOf(s *query.Session, filter *model.Pattern, most int) ([]listedTag, error) {
	var found []string
	keep := func(name string) { found = append(found, name) }
	q := store.NamesQuery{Kind: store.TagNames, Limit: tagPage}
	for more := true; more && len(found) < most; {
		page, further, err := s.NamesPage(q)
		if err != nil {
			return nil, err
		}
		before := len(found)
		if err := matching(s, filter, page, most-before, keep); err != nil {
			return nil, err
		}
		if err := s.Reserve(listedBytes(found[before:])); err != nil {
			return nil, err
		}
		if more = further && len(page) > 0; len(page) > 0 {
			q.After = page[len(page)-1]
		}
	}
	if q.After != "" {
		if err := matching(s, filter, []string{"name"}, 1, keep); err != nil {
			return nil, err
		}
	}
	slices.Sort(found)
	list := []listedTag{}
	for _, name := range slices.Compact(found) {
		if len(list) < most {
			list = append(list, listedTag{name})
		}
	}
	return list, nil
}

// listedBytes is the memory of names in a list and its JSON, where a byte takes up to six.
func listedBytes(names []string) (n int64) {
	for _, name := range names {
		n += entryBytes + 6*int64(len(name))
	}
	return n
}

// listTags answers /tags.
func (a *API) listTags(w http.ResponseWriter, r *http.Request, form url.Values) {
	filter, most, err := filterAndLimit(form)
	if err != nil {
		refuseJSON(w, http.StatusBadRequest, err.Error())
		return
	}
	a.within(w, r, "tags", func(s *query.Session) error {
		list, err := tagsOf(s, filter, most)
		if err != nil {
			return err
		}
		return answerWithin(s, w, form, list)
	})
}

// matching calls f for the first texts that p matches, at most the number in most. It lets other
// queries have their turns, since a costly expression takes a millisecond for a text.
func matching(s *query.Session, p *model.Pattern, texts []string, most int, f func(text string)) error {
	for _, text := range texts {
		if most <= 0 {
			return nil
		}
		if err := s.Tick(store.MatchWork(text)); err != nil {
			return err
		}
		if p.MatchString(text) {
			f(text)
			most--
		}
	}
	return nil
}

// A tagValue is a value of a tag and the number of series that have it.
type tagValue struct {
	Value string `json:"value"`
	Count int    `json:"count"`
}

// listValues answers /tags/TAG. For a tag that no series has, the answer is null.
func (a *API) listValues(w http.ResponseWriter, r *http.Request, form url.Values) {
	tag := r.PathValue("tag")
	if slices.Contains([]string{"tagSeries", "tagMultiSeries", "delSeries"}, tag) { // these paths accept only POST
		w.Header().Set("Allow", http.MethodPost)
		httpapi.WriteEmpty(w, http.StatusMethodNotAllowed)
		return
	}
	filter, most, err := filterAndLimit(form)
	if err != nil {
		refuseJSON(w, http.StatusBadRequest, err.Error())
		return
	}
	a.within(w, r, "tags/"+tag, func(s *query.Session) error {
		values := newTally(s)
		if err := a.tagged(s, narrowed([]string{tag + "!="}, tag, lastOf(form, "filter")), func(n query.Number) error { return values.add(valueOf(n, tag)) }); err != nil {
			return err
		}
		there := len(values.counts) > 0
		if !there {
			var err error
			if there, err = hasTag(s, tag); err != nil {
				return err
			}
		}
		var found any
		if there {
			list := []tagValue{}
			err := matching(s, filter, values.sorted(), most, func(v string) { list = append(list, tagValue{v, values.counts[v]}) })
			if err != nil {
				return err
			}
			found = map[string]any{"tag": tag, "values": list}
		}
		return answerWithin(s, w, form, found)
	})
}

// hasTag reports whether any series has a tag. Every series with tags has the tag "name".
func hasTag(s *query.Session, tag string) (bool, error) {
	q := store.NamesQuery{Kind: store.TagValues, Tag: tag, Limit: 1}
	if tag == "name" {
		q.Kind, q.Tag = store.TagNames, ""
	}
	names, _, err := s.NamesPage(q)
	return len(names) > 0, err
}

// findSeries answers /tags/findSeries: the names of series.
func (a *API) findSeries(w http.ResponseWriter, r *http.Request, form url.Values) {
	expressions := named(form, "expr")
	if len(expressions) == 0 {
		refuseJSON(w, http.StatusBadRequest, "no tag expressions specified")
		return
	}
	a.within(w, r, strings.Join(expressions, " "), func(s *query.Session) error {
		paths := newTally(s)
		if err := a.tagged(s, expressions, func(n query.Number) error { return paths.add(retention.PathOf(n.Metric, n.Tags)) }); err != nil {
			return err
		}
		return answerWithin(s, w, form, append([]string{}, paths.sorted()...))
	})
}

// offered is the default limit of completions.
const offered = 100

// complete answers the completions of a prefix: the first texts that collect adds, up to
// the limit of the request.
func (a *API) complete(w http.ResponseWriter, r *http.Request, form url.Values, expressions []string, prefix string, collect func(*query.Session, *tally) error) {
	most, err := limitOf(form, offered)
	if err != nil {
		refuseJSON(w, http.StatusBadRequest, err.Error())
		return
	}
	a.within(w, r, strings.Join(expressions, " "), func(s *query.Session) error {
		found := newTally(s)
		found.prefix, found.most = prefix, most
		if err := collect(s, found); err != nil {
			return err
		}
		return answerWithin(s, w, form, first(found.sorted(), most))
	})
}

// completeTags answers /tags/autoComplete/tags: the tags of matching series, without
// those that the expressions already use.
func (a *API) completeTags(w http.ResponseWriter, r *http.Request, form url.Values) {
	expressions := named(form, "expr")
	a.complete(w, r, form, expressions, lastOf(form, "tagPrefix"), func(s *query.Session, names *tally) error {
		err := a.tagNames(s, expressions, names.add)
		for _, e := range expressions {
			if parts := tagExpression.FindStringSubmatch(e); parts != nil {
				delete(names.counts, parts[1])
			}
		}
		return err
	})
}

// tagNames calls add for each tag of the matching series.
func (a *API) tagNames(s *query.Session, expressions []string, add func(string) error) error {
	metric, listed := onlyMetric(expressions)
	if !listed {
		return a.tagged(s, expressions, func(n query.Number) error {
			err := add("name")
			for name := range n.Tags.All() {
				err = errors.Join(err, add(name))
			}
			return err
		})
	}
	names, _, err := s.NamesPage(store.NamesQuery{Kind: store.TagNames, Metric: metric})
	if len(names) > 0 {
		err = errors.Join(err, add("name"))
	}
	for i := 0; err == nil && i < len(names); i++ {
		err = add(names[i])
	}
	return err
}

// completeValues answers /tags/autoComplete/values.
func (a *API) completeValues(w http.ResponseWriter, r *http.Request, form url.Values) {
	tag := lastOf(form, "tag")
	if tag == "" {
		refuseJSON(w, http.StatusBadRequest, "no tag specified")
		return
	}
	if !tagExpression.MatchString(tag + "!=") {
		refuseJSON(w, http.StatusBadRequest, "Invalid tagspec "+tag+"!=")
		return
	}
	given, prefix := named(form, "expr"), lastOf(form, "valuePrefix")
	expressions := narrowed(append(slices.Clone(given), tag+"!="), tag, regexp.QuoteMeta(prefix))
	a.complete(w, r, form, expressions, prefix, func(s *query.Session, values *tally) error {
		if metric, ok := onlyMetric(given); ok && tag != "name" {
			return values.list(store.NamesQuery{Kind: store.TagValues, Metric: metric, Tag: tag})
		}
		return a.tagged(s, expressions, func(n query.Number) error { return values.add(valueOf(n, tag)) })
	})
}

// narrowed adds to expressions the condition that the value of a tag begins with the regular
// expression beginning, unless that is empty. Fewer series are then read.
func narrowed(expressions []string, tag, beginning string) []string {
	one := tag + "=~" + beginning
	if beginning == "" || !tagExpression.MatchString(one) {
		return expressions
	}
	return append(expressions, one)
}

// onlyMetric reports whether there are no expressions, or only one that selects a metric, whose
// name it returns. The index then has the names of tags and values, and no series need be read.
func onlyMetric(expressions []string) (metric string, ok bool) {
	if len(expressions) != 1 {
		return "", len(expressions) == 0
	}
	parts := tagExpression.FindStringSubmatch(expressions[0])
	if parts == nil || parts[1] != "name" || parts[2] != "=" {
		return "", false
	}
	return parts[3], parts[3] != ""
}

func first(names []string, most int) []string {
	return append([]string{}, names[:min(len(names), most)]...)
}

// listed returns the series that is listed as path. It does not parse path as carbon does,
// because other senders may have created the series: carbon would read a..b as a.b, a;name=x as
// a, ~a;k=1 as a;k=1, and refuse a;k=~1. Only a path that does not have the form name;tag=value
// is parsed as by carbon.
func listed(path string) (model.Series, *ingest.Fault) {
	s := retention.ParsePath(path)
	braces := strings.Contains(path, "{") && strings.HasSuffix(path, `"}`)
	if s.Metric != "" && !braces && s.Tags.Len() == strings.Count(path, ";") && s.Tags.Len() <= maxTags {
		return model.Series{Metric: s.Metric, Tags: s.Tags}, nil
	}
	carbons, _, f := parsed(path)
	return carbons, f
}

// parsed returns the series that carbon stores a path as, and its canonical name.
func parsed(path string) (model.Series, string, *ingest.Fault) {
	var names ingest.Names
	if f := carbon.ParsePath([]byte(path), &names, maxTags); f != nil {
		return model.Series{}, "", f
	}
	if len(names.Tags) > maxTags {
		return model.Series{}, "", ingest.TooMany(maxTags, names.Metric)
	}
	tags, err := model.NewTags(names.Tags...)
	if err != nil {
		return model.Series{}, "", ingest.Faultf(ingest.BadTag, "%v", err)
	}
	s := model.Series{Metric: names.Metric, Tags: tags}
	return s, retention.PathOf(s.Metric, s.Tags), nil
}

// tagSeries answers the canonical name of a series. Carbon registers its series by this
// request. Here that is not needed: a series exists once it has a sample.
func tagSeries(w http.ResponseWriter, _ *http.Request, form url.Values) {
	if names := canonical(w, form["path"]); names != nil {
		answer(w, form, names[len(names)-1])
	}
}

func tagMultiSeries(w http.ResponseWriter, _ *http.Request, form url.Values) {
	if names := canonical(w, named(form, "path")); names != nil {
		answer(w, form, names)
	}
}

// canonical returns the canonical names of paths; nil if an error was answered.
func canonical(w http.ResponseWriter, paths []string) (names []string) {
	if len(paths) == 0 {
		refuseJSON(w, http.StatusBadRequest, "no path specified")
		return nil
	}
	for _, path := range paths {
		_, name, f := parsed(path)
		if f != nil {
			refuseJSON(w, http.StatusBadRequest, f.Text)
			return nil
		}
		names = append(names, name)
	}
	return names
}

// delSeries deletes series with all their samples, but only those of numbers.
func (a *API) delSeries(w http.ResponseWriter, r *http.Request, form url.Values) {
	paths := named(form, "path")
	if len(paths) == 0 {
		refuseJSON(w, http.StatusBadRequest, "no path specified")
		return
	}
	var deletions []store.Deletion
	for _, path := range paths {
		s, f := listed(path)
		if f != nil {
			refuseJSON(w, http.StatusBadRequest, f.Text)
			return
		}
		for _, t := range []model.Type{model.TypeDouble, model.TypeLong} {
			s.Type = t
			deletions = append(deletions, store.DeletionOf(s, model.AllTime))
		}
	}
	_, err := a.queries.Delete(r.Context(), r.RemoteAddr, func(ctx context.Context) error { return a.store.Delete(ctx, deletions...) })
	if err != nil {
		a.fail(w, r, err)
		return
	}
	a.log.Info("series were deleted by Graphite's API", "series", len(paths), "client", r.RemoteAddr)
	answer(w, form, true)
}
