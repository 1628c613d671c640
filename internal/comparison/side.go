package comparison

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"varve/internal/clip"
	"varve/internal/work"
)

const (
	maxAnswer = 16 << 20 // bytes of an answer with points
	maxNames  = 64 << 20 // bytes of a list of names
	maxFault  = 64 << 10 // bytes of an answer that reports an error

	tries      = 3 // attempts while a server does not answer, or answers 503
	retryPause = time.Second
)

// A side is one of the two servers.
type side struct {
	name    string // a or b
	url     *url.URL
	client  *http.Client
	timeout time.Duration // of a request
	pause   time.Duration // before a request is sent again
	speaks  string        // the API: KairosDB or Graphite
	probe   string        // a path that any such server answers quickly
}

// A SideError means that one of the servers cannot be compared: it does not answer, or its
// answers do not have the form of the original's.
type SideError struct {
	Side string // a or b
	URL  string
	Err  error
}

func (e *SideError) Error() string { return fmt.Sprintf("%s (%s): %v", e.Side, e.URL, e.Err) }

// A refusal is an answer of 400 or 500: the query is invalid, or the server cannot answer it.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return fmt.Sprintf("%d %s", r.status, clip.Text(r.text, 300)) }

// errLarge is the error of an answer that is larger than the limit, or takes too long.
var errLarge = errors.New("the answer is too large or takes too long")

// aliveWithin is the timeout of the request that tests whether a server answers at all.
const aliveWithin = 10 * time.Second

// newSide checks an address.
func newSide(name, address string, timeout time.Duration) (*side, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil {
		if detail, ok := errors.AsType[*url.Error](err); ok {
			err = detail.Err // without the address, which may contain a password
		}
		return nil, fmt.Errorf("address of %s: %w", name, err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("address of %s: %q: want http://HOST:PORT", name, u.Redacted())
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	u.RawQuery, u.Fragment = "", ""
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2, Proxy: http.ProxyFromEnvironment}}
	return &side{name: name, url: u, client: client, timeout: timeout, pause: retryPause, speaks: "KairosDB", probe: "/api/v1/version"}, nil
}

func (s *side) close() { s.client.CloseIdleConnections() }

func (s *side) fail(err error) error {
	return &SideError{Side: s.name, URL: s.url.Redacted(), Err: err}
}

// ask sends a request and decodes its answer. Without a query it is a GET, else a POST. The
// error is a *refusal, errLarge, a *SideError, or that of ctx.
func (s *side) ask(ctx context.Context, path string, query, answer any, most int64) error {
	var body []byte
	if query != nil {
		var err error
		if body, err = json.Marshal(query); err != nil {
			return err
		}
	}
	for try := 1; ; try++ {
		text, err := s.once(ctx, path, body, most, s.timeout)
		if err == nil {
			if err := json.Unmarshal(text, answer); err != nil {
				return s.fail(fmt.Errorf("%s: the answer is not %s's: %w", path, s.speaks, err))
			}
			return nil
		}
		refused := (*refusal)(nil)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errLarge), errors.As(err, &refused) && refused.status != http.StatusServiceUnavailable:
			return err
		case errors.Is(err, context.DeadlineExceeded) && s.alive(ctx):
			return errLarge
		case try == tries:
			return s.fail(fmt.Errorf("request %s %d times: %w", path, tries, err))
		}
		if err := work.Pause(ctx, s.pause); err != nil {
			return err
		}
	}
}

func (s *side) once(ctx context.Context, path string, body []byte, most int64, timeout time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	request, err := http.NewRequestWithContext(ctx, method, s.url.String()+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		if detail, ok := errors.AsType[*url.Error](err); ok {
			err = detail.Err // the address is in the SideError
		}
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(response.Body, maxFault))
		if err != nil {
			return nil, err
		}
		switch response.StatusCode {
		case http.StatusBadRequest, http.StatusInternalServerError, http.StatusServiceUnavailable:
			return nil, &refusal{response.StatusCode, faultOf(text)}
		}
		return nil, fmt.Errorf("%s %s", response.Status, clip.Text(text, 200))
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, most+1))
	if err == nil && int64(len(text)) > most {
		err = errLarge
	}
	return text, err
}

// faultOf returns the error text of an answer.
func faultOf(text []byte) string {
	var fault struct{ Errors []string }
	if json.Unmarshal(text, &fault) == nil && len(fault.Errors) > 0 {
		return strings.Join(fault.Errors, "; ")
	}
	return string(text)
}

// alive reports whether the server answers at all.
func (s *side) alive(ctx context.Context) bool {
	_, err := s.once(ctx, s.probe, nil, maxFault, min(aliveWithin, s.timeout))
	return err == nil
}

// version returns the version that a server reports.
func (s *side) version(ctx context.Context) (string, error) {
	var answer struct{ Version string }
	err := s.ask(ctx, "/api/v1/version", nil, &answer, maxFault)
	if _, ok := errors.AsType[*refusal](err); ok {
		err = s.fail(err)
	}
	return answer.Version, err
}
