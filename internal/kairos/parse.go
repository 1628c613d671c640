package kairos

import (
	"time"

	"varve/internal/kairos/agg"
)

// ParseQuery reads the JSON of a query for those who run queries on their own,
// such as roll-ups. Times relative to now are taken from the API's clock. What
// is wrong with the text is an error with the method Messages() []string, which
// holds KairosDB's texts.
func (a *API) ParseQuery(text []byte) (agg.Query, error) {
	p := a.parser
	p.nowMS = a.now().UnixMilli()
	req, err := p.parse(text)
	return req.Query, err
}

// ParseZone finds a time zone by the name that KairosDB's requests use.
func (a *API) ParseZone(name string) (*time.Location, bool) { return loadZone(name) }

// Path is where in the request the fault is, "" if that is not known.
func (f *fault) Path() string { return f.path }

// Messages are the texts of an error answer.
func (f *fault) Messages() []string { return f.messages }
