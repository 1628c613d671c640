package graphite

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"varve/internal/query"
	"varve/internal/store"
)

// maxForm limits the parameters of the query string and the body together, in bytes.
const maxForm = 1 << 20

// maxParameters limits their number.
const maxParameters = 10_000

// withForm reads the parameters of a request, which count as the text of a query until h returns.
func (a *API) withForm(h formHandler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, err := a.readForm(r)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		defer text.Close()
		var form url.Values
		if err := text.Parse(func(text []byte) (err error) { form, err = formOf(r, text); return err }); err != nil {
			a.fail(w, r, err)
			return
		}
		h(w, r, form)
	}
}

const (
	encodedForm = "application/x-www-form-urlencoded"
	partedForm  = "multipart/form-data"
)

// kindOf returns the kind of form in the body of a request, "" if it has none.
func kindOf(r *http.Request) string {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if r.Method != http.MethodPost || kind != encodedForm && kind != partedForm {
		return ""
	}
	return kind
}

// beforeBody returns what the text of a request with a form has before the body.
func beforeBody(r *http.Request) string {
	if r.URL.RawQuery == "" {
		return "" // an & would count as a parameter and a byte
	}
	return r.URL.RawQuery + "&"
}

// readForm returns the query string, followed by & and the body if that is a form.
func (a *API) readForm(r *http.Request) (*query.Text, error) {
	if kindOf(r) == "" {
		return a.queries.NewText(r.Context(), r.RemoteAddr, []byte(r.URL.RawQuery)), nil
	}
	return a.queries.ReadText(r.Context(), r.RemoteAddr, io.MultiReader(strings.NewReader(beforeBody(r)), r.Body), query.TextLimit{
		Key: "bytes of a form", Max: maxForm, What: "read a form", Announced: r.ContentLength,
	})
}

// formOf returns the parameters of the query string, followed by those of the body. text is that of
// readForm.
func formOf(r *http.Request, text []byte) (form url.Values, err error) {
	if kindOf(r) == partedForm {
		form, err = partsOf(r, text[len(beforeBody(r)):])
	} else {
		form, err = parameters(string(text))
	}
	if err != nil {
		return nil, &store.InputError{Reason: "read the form: " + err.Error()}
	}
	return form, nil
}

// partsOf returns the parameters of the query string, followed by those of a body of parts.
func partsOf(r *http.Request, body []byte) (url.Values, error) {
	form, err := parameters(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if err := r.ParseMultipartForm(maxForm); err != nil && !errors.Is(err, http.ErrNotMultipart) {
		return nil, err
	}
	if r.MultipartForm != nil {
		for name, values := range r.MultipartForm.Value {
			form[name] = append(form[name], values...)
		}
	}
	return form, nil
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
