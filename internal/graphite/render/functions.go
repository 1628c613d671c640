package render

import (
	"encoding/json"
	"math"
	"net/url"
	"strings"
	"sync"

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

var described = sync.OnceValue(func() map[string]description {
	out := map[string]description{}
	for _, f := range function.All() {
		out[f.Name] = describe(f)
	}
	return out
})

// descriptions returns the descriptions that a request selects. They must not be
// changed.
func descriptions(form url.Values) map[string]description {
	if kind, _ := last(form, "type"); kind == "pie" {
		return pies()
	}
	return described()
}

// A listing has the parameters on which the JSON of Functions depends.
type listing struct {
	kind, group          string
	one, grouped, pretty bool
}

func listingOf(form url.Values) (l listing) {
	if kind, _ := last(form, "type"); kind == "pie" {
		l.kind = kind
	}
	grouped, _ := last(form, "grouped")
	pretty, _ := last(form, "pretty")
	l.group, l.one = last(form, "group")
	l.grouped, l.pretty = grouped == "1" || strings.EqualFold(grouped, "true"), pretty != ""
	return l
}

// listings caches the JSON of listings. Anybody may request a listing, and making one of all functions takes
// far longer than any other answer that needs no rights.
var listings = struct {
	sync.Mutex
	made map[listing][]byte
}{made: map[listing][]byte{}}

// Functions returns the functions as a JSON object by name, or with the parameter
// grouped by group and name. The parameter group selects one group. The JSON must not be changed.
func Functions(form url.Values) ([]byte, error) {
	l := listingOf(form)
	listings.Lock()
	defer listings.Unlock()
	if made, ok := listings.made[l]; ok {
		return made, nil
	}
	flat, groups := map[string]description{}, map[string]map[string]description{}
	for name, d := range descriptions(form) {
		if l.one && d.Group != l.group {
			continue
		}
		flat[name] = d
		if groups[d.Group] == nil {
			groups[d.Group] = map[string]description{}
		}
		groups[d.Group][name] = d
	}
	var list any = flat
	if l.grouped {
		list = groups
	}
	made, err := marshal(form, list)
	if err == nil && len(flat) > 0 { // do not cache listings of groups that do not exist: their number is unbounded
		listings.made[l] = made
	}
	return made, err
}

// Function returns the JSON of one function, or false if no function has this
// name.
func Function(name string, form url.Values) ([]byte, bool, error) {
	d, ok := descriptions(form)[name]
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
