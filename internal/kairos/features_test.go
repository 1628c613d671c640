package kairos

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"varve/internal/kairos/agg"
)

// Each aggregator and group-by has a form, with the properties that are not
// hidden.
func TestFeaturesMatchRegistry(t *testing.T) {
	var families []family
	if err := json.Unmarshal(featuresText, &families); err != nil {
		t.Fatal(err)
	}
	forms := map[string][]string{}
	for _, f := range families {
		for _, c := range f.Components {
			names := []string{}
			for _, raw := range c.Properties {
				var p struct{ Name string }
				if err := json.Unmarshal(raw, &p); err != nil {
					t.Fatal(err)
				}
				names = append(names, p.Name)
			}
			slices.Sort(names)
			forms[f.Name+"."+c.Name] = names
		}
	}
	check := func(key string, properties []agg.Property) {
		names := []string{}
		for _, p := range properties {
			if !p.Hidden {
				names = append(names, p.Name)
			}
		}
		slices.Sort(names)
		switch form, ok := forms[key]; {
		case !ok:
			t.Errorf("features.json has no form for %s", key)
		case !slices.Equal(form, names):
			t.Errorf("%s: the form in features.json has %q, the properties in package agg are %q", key, form, names)
		}
		delete(forms, key)
	}
	for _, s := range agg.Aggregators() {
		check("aggregators."+s.Name, s.Properties)
	}
	for _, s := range agg.GroupBys() {
		check("group_by."+s.Name, s.Properties)
	}
	for key := range forms {
		t.Errorf("%s has a form, but is not known", key)
	}
}

// An added aggregator gets a form from its spec alone.
func TestFormsOfAddedAggregators(t *testing.T) {
	added := agg.AggregatorSpec{Name: "root_mean", Doc: "What it is.", Properties: []agg.Property{
		{Name: "sampling", Kind: agg.SamplingProperty}, {Name: "power", Kind: agg.DoubleProperty, Doc: "which"}, {Name: "x", Hidden: true},
	}}
	var got []component
	if err := json.Unmarshal(loadFeatures(agg.GroupBys(), append(agg.Aggregators(), added)).byFamily["aggregators"], &got); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(got, func(c component) bool { return c.Name == "root_mean" })
	if i < 0 || len(got) != len(agg.Aggregators())+1 || got[i].Label != "Root Mean" || got[i].Description != "What it is." || len(got[i].Properties) != 2 ||
		!strings.Contains(string(got[i].Properties[0]), "MILLISECONDS") || !strings.Contains(string(got[i].Properties[1]), `"type":"double"`) {
		t.Errorf("%+v", got)
	}
}

func TestFeatureEscapes(t *testing.T) {
	s := startServer(t)
	_, body := s.do(t, "GET", "/api/v1/features", "")
	if i := strings.IndexAny(body, "=<>&'"); i >= 0 {
		t.Errorf("not escaped: %.60s", body[i:])
	}
	if !strings.HasPrefix(body, `[{"name":"group_by","label":"Group By","properties":[{"name":"bin",`) {
		t.Errorf("%.100s", body)
	}
}
