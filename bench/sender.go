package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
)

// inParallel splits the hosts of w over n connections and runs send for each
// part. The first failure ends the others.
func inParallel(ctx context.Context, w workload, n int, send func(ctx context.Context, from, to int) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, n)
	for c := range n {
		go func() {
			err := send(ctx, w.hosts*c/n, w.hosts*(c+1)/n)
			if err != nil {
				cancel()
			}
			errs <- err
		}()
	}
	var all []error
	for range n {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// sendLines sends hosts [from, to) of w as put lines of about 130 bytes.
func sendLines(ctx context.Context, w workload, addr string, from, to int) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()

	var heads [metricsPerHost]string
	for m := range heads {
		heads[m] = "put " + metricName(m) + " "
	}
	tails := make([]string, to-from)
	for i := range tails {
		for _, t := range hostTags(from + i) {
			tails[i] += " " + t.name + "=" + t.value
		}
		tails[i] += "\n"
	}
	buffered := bufio.NewWriterSize(conn, 64<<10)
	line := make([]byte, 0, 256)
	err = w.generate(from, to, func(p point) error {
		line = append(line[:0], heads[p.metric]...)
		line = strconv.AppendInt(line, p.ms/1000, 10)
		line = append(line, ' ')
		line = p.value.appendTo(line)
		line = append(line, tails[p.host-from]...)
		_, err := buffered.Write(line)
		return err
	})
	return errors.Join(err, buffered.Flush())
}

// Bodies are sent at this size: a few hundred entries of entryPoints points.
const (
	entryPoints   = 5
	bodyEntries   = 400
	bodyPutPoints = entryPoints * bodyEntries
)

// jsonTags is the tags of a host as a JSON object.
func jsonTags(h int) string {
	var out []byte
	for i, t := range hostTags(h) {
		out = append(out, "{,"[min(i, 1)])
		out = fmt.Appendf(out, "%q:%q", t.name, t.value)
	}
	return string(append(out, '}'))
}

// A body collects entries of a JSON array and posts them once there are enough.
type body struct {
	url     string
	text    bytes.Buffer
	entries int
	max     int
}

// next begins an entry.
func (b *body) next() {
	b.text.WriteByte("[,"[min(b.entries, 1)])
	b.entries++
}

// post sends the collected entries if there are enough of them, or if they are
// the last.
func (b *body) post(ctx context.Context, last bool) error {
	if b.entries == 0 || b.entries < b.max && !last {
		return nil
	}
	b.text.WriteByte(']')
	if _, err := httpDo(ctx, http.MethodPost, b.url, http.Header{"Content-Type": {"application/json"}}, b.text.Bytes()); err != nil {
		return err
	}
	b.text.Reset()
	b.entries = 0
	return nil
}

// sendKairos sends hosts [from, to) of w to POST /api/v1/datapoints, entryPoints
// points of a series at a time.
func sendKairos(ctx context.Context, w workload, url string, from, to int) error {
	var heads [metricsPerHost]string
	for m := range heads {
		heads[m] = fmt.Sprintf(`{"name":%q,"datapoints":[`, metricName(m))
	}
	tails := make([]string, to-from)
	for i := range tails {
		tails[i] = `],"tags":` + jsonTags(from+i) + "}"
	}
	type pending struct {
		text []byte
		n    int
	}
	perHost := w.metrics()
	series := make([]pending, (to-from)*perHost)
	out := body{url: url, max: bodyEntries}
	flush := func(i int, last bool) error {
		s := &series[i]
		if s.n > 0 {
			out.next()
			out.text.WriteString(heads[i%perHost])
			out.text.Write(s.text)
			out.text.WriteString(tails[i/perHost])
			s.text, s.n = s.text[:0], 0
		}
		return out.post(ctx, last)
	}
	err := w.generate(from, to, func(p point) error {
		i := (p.host-from)*perHost + p.metric
		s := &series[i]
		if s.n > 0 {
			s.text = append(s.text, ',')
		}
		s.text = append(s.text, '[')
		s.text = strconv.AppendInt(s.text, p.ms, 10)
		s.text = append(s.text, ',')
		s.text = p.value.appendTo(s.text)
		s.text = append(s.text, ']')
		if s.n++; s.n < entryPoints {
			return nil
		}
		return flush(i, false)
	})
	for i := 0; err == nil && i < len(series); i++ {
		err = flush(i, i == len(series)-1)
	}
	return err
}

// sendPuts sends hosts [from, to) of w to OpenTSDB's POST /api/put.
func sendPuts(ctx context.Context, w workload, url string, from, to int) error {
	tails := make([]string, to-from)
	for i := range tails {
		tails[i] = `,"tags":` + jsonTags(from+i) + "}"
	}
	var heads [metricsPerHost]string
	for m := range heads {
		heads[m] = fmt.Sprintf(`{"metric":%q,"timestamp":`, metricName(m))
	}
	out := body{url: url, max: bodyPutPoints}
	text := make([]byte, 0, 256)
	err := w.generate(from, to, func(p point) error {
		out.next()
		text = append(text[:0], heads[p.metric]...)
		text = strconv.AppendInt(text, p.ms, 10)
		text = append(text, `,"value":`...)
		text = p.value.appendTo(text)
		text = append(text, tails[p.host-from]...)
		out.text.Write(text)
		return out.post(ctx, false)
	})
	return errors.Join(err, out.post(ctx, true))
}

// client keeps connections open, and accepts no compressed answers: it measures
// servers, not gzip.
var client = &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 16}}

// httpDo returns the body of a successful answer.
func httpDo(ctx context.Context, method, url string, header http.Header, body []byte) ([]byte, error) {
	return httpOver(ctx, client, method, url, header, body)
}

// httpOver is httpDo by another client.
func httpOver(ctx context.Context, client *http.Client, method, url string, header http.Header, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if header != nil {
		r.Header = header
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= 300 {
		return nil, fmt.Errorf("%s %s: %s: %.500s", method, url, answer.Status, text)
	}
	return text, nil
}

func httpGet(ctx context.Context, url string) ([]byte, error) {
	return httpDo(ctx, http.MethodGet, url, nil, nil)
}
