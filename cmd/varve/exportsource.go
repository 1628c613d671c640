package main

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
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"

	"varve/internal/embedded"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/transfer"
)

// An exportSource provides the points of an export.
type exportSource interface {
	metrics(ctx context.Context) iter.Seq2[string, error]
	has(ctx context.Context, metric string) (bool, error)

	// export writes a metric. It calls progress with the number of series written
	// so far, if the source knows it.
	export(ctx context.Context, metric string, within model.TimeRange, w io.Writer, progress func(series, of int)) error
}

// errInterrupted is the error of a command that a signal has ended.
var errInterrupted = errors.New("interrupted")

// withSource opens what the flags name for an export, and closes it when run has ended.
func (l line) withSource(t terminal, run func(ctx context.Context, source exportSource) error) error {
	if err := l.target(t); err != nil {
		return err
	}
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer restore()
	source, closeSource, err := l.exportSource(t)
	if err != nil {
		return err
	}
	err = errors.Join(run(ctx, source), closeSource())
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

func (l line) exportSource(t terminal) (exportSource, func() error, error) {
	if l.online() {
		return remoteSource{l}, func() error { return nil }, l.reach()
	}
	s, _, err := l.openStore(t, false, false)
	if err != nil {
		return nil, nil, err
	}
	return localSource{s}, s.Close, nil
}

type localSource struct{ store *embedded.Store }

func (s localSource) metrics(ctx context.Context) iter.Seq2[string, error] {
	return transfer.Metrics(ctx, s.store)
}

func (s localSource) has(ctx context.Context, metric string) (there bool, err error) {
	view, err := s.store.View(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	names, _, err := view.Names(ctx, store.NamesQuery{Kind: store.MetricNames, Prefix: metric, Limit: 1})
	return slices.Contains(names, metric), err
}

func (s localSource) export(ctx context.Context, metric string, within model.TimeRange, w io.Writer, progress func(series, of int)) error {
	_, err := transfer.Export(ctx, s.store, metric, within, w, progress)
	return err
}

type remoteSource struct{ line line }

func (s remoteSource) get(ctx context.Context, path string) (io.ReadCloser, error) {
	addr := dialable(s.line.flags["http-addr"])
	response, err := ask(ctx, http.MethodGet, addr, path, "", nil)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
		return nil, fmt.Errorf("the server at %s answers %s %s", addr, response.Status, bytes.TrimSpace(text))
	}
	return response.Body, nil
}

func (s remoteSource) names(ctx context.Context, parameters string) ([]string, error) {
	var answer struct{ Results []string }
	body, err := s.get(ctx, "/api/v1/metricnames"+parameters)
	if err == nil {
		defer body.Close()
		err = json.NewDecoder(body).Decode(&answer)
	}
	if err != nil {
		return nil, fmt.Errorf("list metrics: %w", err)
	}
	return answer.Results, nil
}

func (s remoteSource) has(ctx context.Context, metric string) (bool, error) {
	names, err := s.names(ctx, "?prefix="+url.QueryEscape(metric))
	return slices.Contains(names, metric), err
}

func (s remoteSource) metrics(ctx context.Context) iter.Seq2[string, error] {
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

func (s remoteSource) export(ctx context.Context, metric string, within model.TimeRange, w io.Writer, _ func(series, of int)) error {
	q := url.Values{"metric": {metric}}
	if within.StartMS != model.AllTime.StartMS {
		q.Set("start", strconv.FormatInt(within.StartMS, 10))
	}
	if within.EndMS != model.AllTime.EndMS {
		q.Set("end", strconv.FormatInt(within.EndMS, 10))
	}
	body, err := s.get(ctx, "/api/v1/export?"+q.Encode())
	if err == nil {
		defer body.Close()
		_, err = io.Copy(w, body)
	}
	if err != nil {
		return fmt.Errorf("export %s: %w", metric, err)
	}
	return nil
}
