package job

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"varve/internal/ingest/kairosjson"
	"varve/internal/model"
	"varve/internal/remote"
	"varve/internal/store"
	"varve/internal/transfer"
	"varve/internal/work"
)

// A Source provides the points of an export.
type Source interface {
	Metrics(ctx context.Context) iter.Seq2[string, error]
	Has(ctx context.Context, metric string) (bool, error)

	// Export writes a metric, with the buckets as samples or without them. It calls progress
	// with the number of series written so far, if the source knows it. A server of an earlier
	// version refuses to leave out buckets.
	Export(ctx context.Context, metric string, within model.TimeRange, buckets store.BucketMode, w io.Writer, progress func(series, of int)) error

	// ExportBuckets writes a metric with its buckets separate, as transfer.ExportBuckets
	// does. A server of an earlier version refuses the request.
	ExportBuckets(ctx context.Context, metric string, within model.TimeRange, w io.Writer) error
}

// metricsOf lists the metrics of a source for which want returns true.
func metricsOf(ctx context.Context, s Source, want func(name string) bool) ([]string, error) {
	var names []string
	for name, err := range s.Metrics(ctx) {
		if err != nil {
			return nil, err
		}
		if want(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// A Local is a store that is open in this process.
type Local struct{ Store store.Viewer }

// Metrics implements Source.
func (s Local) Metrics(ctx context.Context) iter.Seq2[string, error] {
	return transfer.Metrics(ctx, s.Store)
}

// Has implements Source.
func (s Local) Has(ctx context.Context, metric string) (there bool, err error) {
	view, err := store.OpenCurrent(ctx, s.Store)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	names, _, err := view.Names(ctx, store.NamesQuery{Kind: store.MetricNames, Prefix: metric, Limit: 1})
	return slices.Contains(names, metric), err
}

// Empty reports whether the store has no metric.
func (s Local) Empty(ctx context.Context) (empty bool, err error) {
	view, err := s.Store.View(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	names, _, err := view.Names(ctx, store.NamesQuery{Kind: store.MetricNames, Limit: 1})
	return len(names) == 0, err
}

// Export implements Source.
func (s Local) Export(ctx context.Context, metric string, within model.TimeRange, buckets store.BucketMode, w io.Writer, progress func(series, of int)) error {
	_, err := transfer.Export(ctx, s.Store, metric, within, buckets, w, progress)
	return err
}

// ExportBuckets implements Source.
func (s Local) ExportBuckets(ctx context.Context, metric string, within model.TimeRange, w io.Writer) error {
	_, err := transfer.ExportBuckets(ctx, s.Store, metric, within, w)
	return err
}

// A Remote is a running server: a source, and a sink for any number of goroutines.
type Remote struct{ Server *remote.Server }

func (s Remote) names(ctx context.Context, parameters string) ([]string, error) {
	var answer struct{ Results []string }
	if err := s.Server.Read(ctx, http.MethodGet, "/api/v1/metricnames"+parameters, nil, &answer); err != nil {
		return nil, fmt.Errorf("list metrics: %w", err)
	}
	return answer.Results, nil
}

// Has implements Source.
func (s Remote) Has(ctx context.Context, metric string) (bool, error) {
	names, err := s.names(ctx, "?prefix="+url.QueryEscape(metric))
	return slices.Contains(names, metric), err
}

// Empty reports whether the server has no metric. It returns false if this sender may write
// but not read, because the server then refuses to tell.
func (s Remote) Empty(ctx context.Context) (bool, error) {
	names, err := s.names(ctx, "?limit=1")
	if refused, ok := errors.AsType[*remote.StatusError](err); ok && refused.Status == http.StatusForbidden {
		return false, nil
	}
	return len(names) == 0 && err == nil, err
}

// Metrics implements Source.
func (s Remote) Metrics(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		names, err := s.names(ctx, "")
		if err != nil {
			yield("", err)
			return
		}
		for _, name := range names {
			if !yield(name, nil) {
				return
			}
		}
	}
}

// Export implements Source.
func (s Remote) Export(ctx context.Context, metric string, within model.TimeRange, buckets store.BucketMode, w io.Writer, _ func(series, of int)) error {
	q := url.Values{"metric": {metric}}
	if buckets == store.WithoutBuckets {
		q.Set("buckets", "none")
	}
	return s.export(ctx, q, within, w)
}

// ExportBuckets implements Source.
func (s Remote) ExportBuckets(ctx context.Context, metric string, within model.TimeRange, w io.Writer) error {
	return s.export(ctx, url.Values{"metric": {metric}, "buckets": {"true"}}, within, w)
}

func (s Remote) export(ctx context.Context, q url.Values, within model.TimeRange, w io.Writer) error {
	if within.StartMS != model.AllTime.StartMS {
		q.Set("start", strconv.FormatInt(within.StartMS, 10))
	}
	if within.EndMS != model.AllTime.EndMS {
		q.Set("end", strconv.FormatInt(within.EndMS, 10))
	}
	response, err := s.Server.Ask(ctx, http.MethodGet, "/api/v1/export?"+q.Encode(), nil)
	if err == nil {
		defer response.Body.Close()
		_, err = io.Copy(w, response.Body)
	}
	if err != nil {
		return fmt.Errorf("export %s: %w", q.Get("metric"), err)
	}
	return nil
}

// patience is how long Store retries a block that the server cannot accept at present.
const patience = 2 * time.Minute

// Store implements transfer.Sink.
func (s Remote) Store(ctx context.Context, lines [][]byte) ([]kairosjson.Line, error) {
	body := bytes.Join(lines, []byte("\n"))
	deadline := time.Now().Add(patience)
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		report, again, err := s.post(ctx, body)
		if err == nil {
			return resultsOf(report, len(lines))
		}
		if !again || time.Now().After(deadline) || ctx.Err() != nil {
			return nil, err
		}
		if err := work.Pause(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// post sends a block. again says that a retry may succeed.
func (s Remote) post(ctx context.Context, body []byte) (report *transfer.Report, again bool, err error) {
	status, text, err := s.Server.Exchange(ctx, http.MethodPost, "/api/v1/import", "application/x-ndjson", body)
	if err != nil {
		return nil, true, err
	}
	report = &transfer.Report{}
	err = json.Unmarshal(text, report)
	if err == nil && (status == http.StatusOK || status == http.StatusBadRequest && report.Rejected > 0) {
		return report, false, nil
	}
	return nil, status == http.StatusServiceUnavailable, s.Server.Refusal(status, text)
}

// resultsOf turns a report into a result for each of n lines. A report has only the
// total of the points, so the first result counts the points of all lines.
func resultsOf(report *transfer.Report, n int) ([]kairosjson.Line, error) {
	results := make([]kairosjson.Line, n)
	if n > 0 {
		results[0].Points = int(report.Points)
	}
	for _, f := range report.Faults {
		if f.Line < 1 || f.Line > int64(n) {
			return nil, fmt.Errorf("the server reports an error in line %d, but only %d lines were sent", f.Line, n)
		}
		results[f.Line-1].Faults = f.Reasons
	}
	return results, nil
}
