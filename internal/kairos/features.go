package kairos

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"varve/internal/httpapi"
	"varve/internal/kairos/agg"
)

// featuresText describes KairosDB's group-bys and aggregators to form builders such as
// its web page, in KairosDB's words. A test compares it with the lists of package agg.
// Others get a form derived from their spec.
//
//go:embed features.json
var featuresText []byte

// A family is a kind of component: group_by or aggregators.
type family struct {
	Name       string      `json:"name"`
	Label      string      `json:"label"`
	Components []component `json:"properties"`
}

// A component is one group-by or aggregator. Its properties are sent unchanged.
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

func loadFeatures(groupBys []agg.GroupBySpec, aggregators []agg.AggregatorSpec) features {
	var families []family
	if err := json.Unmarshal(featuresText, &families); err != nil {
		panic("kairos: features.json: " + err.Error())
	}
	for _, spec := range groupBys {
		families[0].add(spec.Name, spec.Doc, spec.Properties)
	}
	for _, spec := range aggregators {
		families[1].add(spec.Name, spec.Doc, spec.Properties)
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

// add derives a form for a component that has none.
func (f *family) add(name, doc string, properties []agg.Property) {
	for i := range f.Components {
		if f.Components[i].Name == name {
			return
		}
	}
	c := component{Name: name, Label: labelOf(name), Description: doc}
	for _, p := range properties {
		if !p.Hidden {
			c.Properties = append(c.Properties, f.form(p))
		}
	}
	f.Components = append(f.Components, c)
}

// labelOf is a name in title case: Least Squares.
func labelOf(name string) string {
	words := strings.Split(name, "_")
	for i, w := range words {
		if w != "" {
			words[i] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, " ")
}

// form is the form of a property of the same name and kind elsewhere, as for those of
// range aggregators, or else a plain field.
func (f *family) form(p agg.Property) json.RawMessage {
	if p.Kind == agg.SamplingProperty || p.Kind == agg.UnitProperty || p.Kind == agg.BoolProperty {
		for _, c := range f.Components {
			for _, raw := range c.Properties {
				var known struct{ Name string }
				if json.Unmarshal(raw, &known) == nil && known.Name == p.Name {
					return raw
				}
			}
		}
	}
	text, err := json.Marshal(map[string]any{
		"name": p.Name, "label": labelOf(p.Name), "description": p.Doc, "optional": false, "type": formTypes[p.Kind],
		"options": []string{}, "defaultValue": "", "autocomplete": "", "multiline": false, "validations": []string{},
	})
	if err != nil {
		panic(err) // texts always marshal
	}
	return text
}

// formTypes are KairosDB's names for kinds of properties; others are texts.
var formTypes = map[agg.PropertyKind]string{
	agg.BoolProperty: "boolean", agg.IntProperty: "int", agg.LongProperty: "long", agg.DoubleProperty: "double",
	agg.TextProperty: "String", agg.TextsProperty: "array", agg.DoublesProperty: "array", agg.ThresholdsProperty: "array",
	agg.ScalarProperty: "Object", agg.TextMapProperty: "Object", agg.SamplingProperty: "Object", agg.UnitProperty: "enum", agg.ZoneProperty: "String",
}

// featureJSON escapes what KairosDB escapes here: = and ' besides <, > and &, none of
// which occurs outside strings.
func featureJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("kairos: features.json: " + err.Error())
	}
	text = bytes.ReplaceAll(text, []byte("="), []byte(`\u003d`))
	return bytes.ReplaceAll(text, []byte("'"), []byte(`\u0027`))
}

func (a *API) getFeatures(w http.ResponseWriter, r *http.Request) error {
	return a.send(w, r, a.features.all)
}

func (a *API) getFeature(w http.ResponseWriter, r *http.Request) error {
	name := strings.ToLower(r.PathValue("feature"))
	text, ok := a.features.byFamily[name]
	if !ok {
		httpapi.WriteErrors(w, http.StatusNotFound, "Unknown feature '"+clipName(name)+"'")
		return nil
	}
	return a.send(w, r, text)
}

// send answers with a complete JSON text.
func (a *API) send(w http.ResponseWriter, r *http.Request, text []byte) error {
	out := newAnswer(w, r, int(a.config.ResponseBuffer))
	out.buf = append(out.buf, text...)
	return out.fault(out.finish())
}
