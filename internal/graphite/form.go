package graphite

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strings"
)

// maxForm limits the body of a request, in bytes.
const maxForm = 1 << 20

// maxParameters limits the parameters of a query string or a body.
const maxParameters = 10_000

// formOf returns the parameters of the query string, followed by those of the body.
func formOf(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	form, err := parameters(r.URL.RawQuery)
	if r.Method != http.MethodPost || err != nil {
		return form, err
	}
	body, err := bodyOf(w, r)
	for name, values := range body {
		form[name] = append(form[name], values...)
	}
	return form, err
}

// bodyOf returns the parameters of a body. A body that is not a form has none.
func bodyOf(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch kind {
	case "application/x-www-form-urlencoded":
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, fmt.Errorf("read the form: %w", err)
		}
		return parameters(string(text))
	case "multipart/form-data":
		if err := r.ParseMultipartForm(maxForm); err != nil && !errors.Is(err, http.ErrNotMultipart) {
			return nil, err
		}
		if r.MultipartForm != nil {
			return maps.Clone(r.MultipartForm.Value), nil
		}
	}
	return nil, nil
}

// parameters parses a query string or a form as graphite-web does: only & separates
// parameters, and a % without two hexadecimal digits is literal. url.ParseQuery would drop
// parameters such as target=disk.used;host=a and target=alias(a,'5%').
func parameters(text string) (url.Values, error) {
	if n := strings.Count(text, "&"); n >= maxParameters {
		return nil, fmt.Errorf("the form has %d parameters; at most %d are allowed", n+1, maxParameters)
	}
	form := url.Values{}
	for pair := range strings.SplitSeq(text, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name = unescape(name)
		form[name] = append(form[name], unescape(value))
	}
	return form, nil
}

// unescape replaces percent escapes by their bytes, and plus signs by spaces.
func unescape(s string) string {
	if !strings.ContainsAny(s, "%+") {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '+':
			c = ' '
		case c == '%' && i+2 < len(s):
			var b [1]byte
			if _, err := hex.Decode(b[:], []byte(s[i+1:i+3])); err == nil {
				c = b[0]
				i += 2
			}
		}
		out = append(out, c)
	}
	return string(out)
}
