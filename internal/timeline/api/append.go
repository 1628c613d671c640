package api

import (
	"cmp"
	"context"
	"fmt"
	"mime"
	"net/http"
	"runtime"

	"varve/internal/httpapi"
	"varve/internal/timeline"
)

// appendNamed answers POST /api/v1/timelines/NAME/events.
func (a *API) appendNamed(w http.ResponseWriter, r *http.Request) error {
	name, err := nameOf(r)
	if err != nil {
		return err
	}
	return a.append(w, r, name)
}

// appendAddressed answers POST /api/v1/timelines/events.
func (a *API) appendAddressed(w http.ResponseWriter, r *http.Request) error {
	return a.append(w, r, "")
}

// append answers an append. An error means that no event was looked at.
func (a *API) append(w http.ResponseWriter, r *http.Request, name string) error {
	gzipped, err := isGzip(r)
	if err != nil {
		return err
	}
	if isLines(r) {
		a.appendLines(w, r, name, gzipped)
		return nil
	}
	body, err := a.pipeline.ReadBody(w, r, gzipped)
	if err != nil {
		return err
	}
	defer body.Release()
	if err := checkJSON(body.Bytes); err != nil {
		return fmt.Errorf("the body must be an event or an array of events; lines of events need the Content-Type application/x-ndjson: %w", err)
	}
	b := &block{api: a, name: name, report: newReport(a.pipeline.NewShare(r.RemoteAddr))}
	defer b.report.share.Release()
	ctx, cancel := a.pipeline.StoreContext(r)
	defer cancel()
	err = b.addAll(ctx, body.Bytes)
	if err == nil {
		err = b.flush(ctx)
	}
	a.answer(w, r, b, err)
	return nil
}

// addAll adds the event, or the events of the array, in text.
func (b *block) addAll(ctx context.Context, text []byte) error {
	text = text[space(text, 0):]
	if text[0] != '[' {
		e, err := parseEvent(text, b.name)
		return b.add(ctx, e, err)
	}
	for i := 1; ; {
		raw, end, ok := element(text, i)
		if !ok {
			return nil
		}
		e, err := parseEvent(raw, b.name)
		if err := b.add(ctx, e, err); err != nil {
			return err
		}
		i = end
	}
}

// isLines reports whether a body is lines of events, by its Content-Type.
func isLines(r *http.Request) bool {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && (media == "application/x-ndjson" || media == "application/ndjson" || media == "application/jsonl")
}

// appendLines stores events as they arrive, one per line.
func (a *API) appendLines(w http.ResponseWriter, r *http.Request, name string, gzipped bool) {
	b := &block{api: a, name: name, report: newReport(a.pipeline.NewShare(r.RemoteAddr))}
	defer b.report.share.Release()
	in := &lineReader{src: r.Body, share: a.pipeline.NewShare(r.RemoteAddr), max: a.lineMax(), gzipped: gzipped, stopping: httpapi.Stopping(r.Context())}
	defer in.share.Release()
	err := in.open(r.Context())
	for err == nil && !in.ended {
		err = a.storeLines(r, in, b)
		runtime.Gosched() // unpacking a body may use a CPU for minutes without waiting for its sender
	}
	a.answer(w, r, b, err)
}

// storeLines reads more of the body, and appends the lines that have arrived completely.
func (a *API) storeLines(r *http.Request, in *lineReader, b *block) error {
	failed, before := in.fill(r.Context()), b.report.Accepted
	ctx, cancel := a.pipeline.StoreContext(r)
	defer cancel()
	for {
		line, err, ok := in.next()
		if !ok {
			break
		}
		var e timeline.Addressed
		if err == nil {
			if err = checkJSON(line); err == nil {
				e, err = parseEvent(line, b.name)
			}
		}
		if err := b.add(ctx, e, err); err != nil {
			return err
		}
	}
	if err := b.flush(ctx); err != nil { // before the next fill overwrites the lines
		return err
	}
	return cmp.Or(failed, in.checkEmpty(b.report.Accepted > before))
}

// answer reports what became of the events of a request.
func (a *API) answer(w http.ResponseWriter, r *http.Request, b *block, err error) {
	b.report.write(w, r, a.log, err)
}
