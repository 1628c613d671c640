package kairos

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"varve/internal/httpapi"
)

// featuresText describes group-bys and aggregators to form builders such as
// KairosDB's web page, in KairosDB's words. A test holds it against the lists of
// package query.
//
//go:embed features.json
var featuresText []byte

// A family is a kind of component: group_by or aggregators.
type family struct {
	Name       string      `json:"name"`
	Label      string      `json:"label"`
	Components []component `json:"properties"`
}

// A component is one group-by or aggregator. Its properties go out as they are.
type component struct {
	Name        string            `json:"name"`
	Label       string            `json:"label"`
	Description string            `json:"description"`
	Properties  []json.RawMessage `json:"properties"`
}

// features are the answers of the features endpoints: all families, with
// components by label, and each family's components by name.
type features struct {
	all      []byte
	byFamily map[string][]byte
}

func loadFeatures() features {
	var families []family
	if err := json.Unmarshal(featuresText, &families); err != nil {
		panic("kairos: features.json: " + err.Error())
	}
	f := features{byFamily: map[string][]byte{}}
	for _, fam := range families {
		slices.SortFunc(fam.Components, func(a, b component) int { return strings.Compare(a.Name, b.Name) })
		f.byFamily[fam.Name] = featureJSON(fam.Components)
		slices.SortFunc(fam.Components, func(a, b component) int { return strings.Compare(a.Label, b.Label) })
	}
	f.all = featureJSON(families)
	return f
}

// featureJSON escapes what KairosDB escapes here: = and ' beside <, > and &,
// none of which occurs outside strings.
func featureJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("kairos: features.json: " + err.Error())
	}
	text = bytes.ReplaceAll(text, []byte("="), []byte(`\u003d`))
	return bytes.ReplaceAll(text, []byte("'"), []byte(`\u0027`))
}

func (a *API) getFeatures(w http.ResponseWriter, r *http.Request) {
	dropBody(r)
	a.send(w, r, a.features.all)
}

func (a *API) getFeature(w http.ResponseWriter, r *http.Request) {
	dropBody(r)
	name := strings.ToLower(r.PathValue("feature"))
	text, ok := a.features.byFamily[name]
	if !ok {
		httpapi.WriteErrors(w, http.StatusNotFound, "Unknown feature '"+name+"'")
		return
	}
	a.send(w, r, text)
}

// send answers with a complete JSON text.
func (a *API) send(w http.ResponseWriter, r *http.Request, text []byte) {
	out := newAnswer(w, r, int(a.config.ResponseBuffer))
	out.buf = append(out.buf, text...)
	if err := out.finish(); err != nil {
		a.abandon(out, r, err)
	}
}
