package kairos

import (
	"time"

	"varve/internal/kairos/agg"
)

// ParseQuery parses the JSON of a query for callers that run queries themselves, such
// as roll-ups. Relative times refer to the API's clock. An error in the text has the
// method Messages() []string, which returns KairosDB's texts.
func (a *API) ParseQuery(text []byte) (agg.Query, error) {
	p := a.parser
	p.nowMS = a.now().UnixMilli()
	req, err := p.parse(text)
	return req.Query, err
}

// ParseZone finds a time zone by the name that KairosDB's requests use.
func (a *API) ParseZone(name string) (*time.Location, bool) { return loadZone(name) }

// Path is the path of the fault in the request, "" if unknown.
func (f *fault) Path() string { return f.path }

// Messages are the texts of an error answer.
func (f *fault) Messages() []string { return f.messages }
