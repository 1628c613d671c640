package render

import (
	"encoding/json"
	"math"
	"net/url"
	"strings"

	"varve/internal/graphite/function"
)

// A description describes a function to clients. Dashboard editors build their
// lists of functions from descriptions.
type description struct {
	Name        string      `json:"name"`
	Function    string      `json:"function"`
	Description string      `json:"description"`
	Module      string      `json:"module"`
	Group       string      `json:"group"`
	Params      []parameter `json:"params"`
}

type parameter struct {
	Name        string        `json:"name"`
	Type        function.Type `json:"type"`
	Required    bool          `json:"required,omitempty"`
	Default     any           `json:"default,omitempty"`
	Multiple    bool          `json:"multiple,omitempty"`
	Options     []any         `json:"options,omitempty"`
	Suggestions []any         `json:"suggestions,omitempty"`
}

func describe(f *function.Function) description {
	d := description{Name: f.Name, Function: f.Signature(), Description: f.Description, Module: "graphite.render.functions", Group: f.Group, Params: []parameter{}}
	for _, p := range f.Params {
		standard := p.Default
		if v, ok := standard.(float64); ok && math.IsInf(v, 1) {
			standard = json.RawMessage("1e9999")
		}
		d.Params = append(d.Params, parameter{p.Name, p.Type, p.Required, standard, p.Multiple, p.AllOptions(), p.Suggestions})
	}
	return d
}

// pies returns the functions that reduce a series to a slice of a pie chart.
func pies() map[string]description {
	out := map[string]description{}
	for name, what := range map[string]string{"average": "Takes the average.", "maximum": "Takes the greatest value.", "minimum": "Takes the least value."} {
		out[name] = description{name, name + "(series)", what, "graphite.render.functions", "Pie", []parameter{{Name: "series", Type: "series", Required: true}}}
	}
	return out
}

func described(form url.Values) map[string]description {
	if kind, _ := last(form, "type"); kind == "pie" {
		return pies()
	}
	out := map[string]description{}
	for _, f := range function.All() {
		out[f.Name] = describe(f)
	}
	return out
}

// Functions returns the functions as a JSON object by name, or with the parameter
// grouped by group and name. The parameter group selects one group.
func Functions(form url.Values) ([]byte, error) {
	grouped, _ := last(form, "grouped")
	group, one := last(form, "group")
	flat, groups := map[string]description{}, map[string]map[string]description{}
	for name, d := range described(form) {
		if one && d.Group != group {
			continue
		}
		flat[name] = d
		if groups[d.Group] == nil {
			groups[d.Group] = map[string]description{}
		}
		groups[d.Group][name] = d
	}
	if grouped == "1" || strings.EqualFold(grouped, "true") {
		return marshal(form, groups)
	}
	return marshal(form, flat)
}

// Function returns the JSON of one function, or false if no function has this
// name.
func Function(name string, form url.Values) ([]byte, bool, error) {
	d, ok := described(form)[name]
	if !ok {
		return nil, false, nil
	}
	out, err := marshal(form, d)
	return out, true, err
}

func marshal(form url.Values, v any) ([]byte, error) {
	if pretty, _ := last(form, "pretty"); pretty != "" {
		return json.MarshalIndent(v, "", "  ")
	}
	return json.Marshal(v)
}
