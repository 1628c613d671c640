package kairos

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"varve/internal/ingest/jsontext"
	"varve/internal/kairos/agg"
	"varve/internal/suggest"
)

// maxNamed bounds the aggregators, and the group-bys, of one metric: each point passes
// through all of them.
const maxNamed = 200

// eachNamed visits the objects of an array, each of which must have a name. at
// is the context of messages, such as query.metric[0].aggregators[1].
func eachNamed(list *value, context string, visit func(at, name string, v *value) error) error {
	if list.kind != jsontext.Array {
		return list.mustBe("This is not a JSON Array.", "an array")
	}
	if n := len(list.items); n > maxNamed {
		return list.fault(fmt.Sprintf("%s must not have more than %d elements, not %d", context, maxNamed, n))
	}
	for j := range list.items {
		v := &list.items[j]
		at := context + "[" + strconv.Itoa(j) + "]"
		if v.kind != jsontext.Object {
			return v.mustBe("Not a JSON Object: "+v.String(), "an object")
		}
		name := v.member("name")
		if name == nil {
			return v.fault(at + " must have a name")
		}
		text, err := name.scalarText()
		if err != nil {
			return err
		}
		if text == "" {
			return v.fault(at + " must have a name")
		}
		if err := visit(at, text, v); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) steps(m *agg.MetricQuery, v *value, context string) (err error) {
	m.Steps, err = components(p.aggregators, v, "aggregators", context, aggregatorClass)
	return err
}

func (p *parser) groupBy(m *agg.MetricQuery, v *value, context string) (err error) {
	m.GroupBy, err = components(p.groupBys, v, "group_by", context, groupByClass)
	return err
}

// components builds the components in the list member of v, if v has it. class returns
// KairosDB's class of a name.
func components[C any](specs map[string]agg.Spec[C], v *value, member, context string, class func(name string) string) (built []C, err error) {
	list := v.member(member)
	if list == nil {
		return nil, nil
	}
	err = eachNamed(list, context+"."+member, func(at, name string, v *value) error {
		spec, ok := specs[name]
		if !ok {
			return v.fault(at + "." + clipName(name) + " invalid " + member + " name" + suggest.Hint(name, slices.Sorted(maps.Keys(specs))))
		}
		args, err := arguments(v, spec.Properties, at, name, class(name))
		if err != nil {
			return err
		}
		c, err := spec.New(args)
		if err != nil {
			return argumentFault(v, at, err)
		}
		built = append(built, c)
		return nil
	})
	return built, err
}

// argumentFault gives each reason its context.
func argumentFault(v *value, at string, err error) error {
	var bad *agg.ArgumentError
	if !errors.As(err, &bad) {
		return err
	}
	f := &fault{at: v}
	for _, reason := range bad.Reasons {
		f.messages = append(f.messages, at+"."+reason)
	}
	return f
}

// arguments reads the properties of an aggregator or group-by from its members.
func arguments(v *value, properties []agg.Property, at, name, class string) (agg.Args, error) {
	args := agg.Args{}
	for i := range v.members {
		m := &v.members[i]
		if m.name == "name" {
			continue
		}
		property, ok := propertyOf(properties, m.name)
		if !ok {
			return nil, m.value.fault(fmt.Sprintf(
				"Property '%s' was specified for object '%s' but no matching setter was found on 'class %s'",
				clipName(m.name), name, class) + suggest.Hint(m.name, names(properties)))
		}
		if m.value.isNull() {
			return nil, m.value.fault(at + "." + m.name + " may not be null")
		}
		arg, err := argument(&m.value, property, at)
		if err != nil {
			return nil, err
		}
		args[m.name] = arg
	}
	return args, nil
}

func names(properties []agg.Property) []string {
	list := make([]string, len(properties))
	for i := range properties {
		list[i] = properties[i].Name
	}
	return list
}

func propertyOf(properties []agg.Property, name string) (agg.Property, bool) {
	for _, p := range properties {
		if p.Name == name {
			return p, true
		}
	}
	return agg.Property{}, false
}

// argument converts a value to the Go type of a property's kind.
func argument(v *value, p agg.Property, at string) (any, error) {
	switch p.Kind {
	case agg.BoolProperty:
		return v.boolean(), nil
	case agg.IntProperty:
		return v.int32()
	case agg.LongProperty:
		return v.long()
	case agg.DoubleProperty:
		return doubleArgument(v, p, at)
	case agg.TextProperty:
		return v.scalarText()
	case agg.TextsProperty:
		return textsArgument(v)
	case agg.DoublesProperty:
		return doublesArgument(v, p, at)
	case agg.SamplingProperty:
		return spanOf(v, at+"."+p.Name, at)
	case agg.UnitProperty:
		return unitOf(v, at)
	case agg.ZoneProperty:
		return zoneOf(v, at)
	case agg.ScalarProperty:
		return scalarArgument(v, p, at)
	case agg.TextMapProperty:
		return textMapArgument(v)
	case agg.ThresholdsProperty:
		return thresholdsArgument(v, p, at)
	}
	panic("kairos: property of unknown kind " + p.Name)
}

func doubleArgument(v *value, p agg.Property, at string) (float64, error) {
	f, err := v.double()
	if err != nil {
		return 0, v.fault(at + "." + p.Name + " " + err.Error())
	}
	return f, nil
}

func elements(v *value) ([]value, error) {
	if v.kind != jsontext.Array {
		return nil, v.fault("java.lang.IllegalStateException: Expected BEGIN_ARRAY but was " + v.kind.String())
	}
	return v.items, nil
}

func textsArgument(v *value) ([]string, error) {
	items, err := elements(v)
	texts := make([]string, 0, len(items))
	for i := range items {
		if items[i].isNull() {
			texts = append(texts, "")
			continue
		}
		text, err := items[i].scalarText()
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return texts, err
}

// textMapArgument reads {"name":"text",...}.
func textMapArgument(v *value) (map[string]string, error) {
	if v.kind != jsontext.Object {
		return nil, v.fault("java.lang.IllegalStateException: Expected BEGIN_OBJECT but was " + v.kind.String())
	}
	texts := make(map[string]string, len(v.members))
	for i := range v.members {
		text, err := v.members[i].value.scalarText()
		if err != nil {
			return nil, err
		}
		texts[v.members[i].name] = text
	}
	return texts, nil
}

func doublesArgument(v *value, p agg.Property, at string) ([]float64, error) {
	items, err := elements(v)
	numbers := make([]float64, 0, len(items))
	for i := range items {
		f, err := doubleArgument(&items[i], p, at)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, f)
	}
	return numbers, err
}

// scalarArgument keeps the type as written: "13" is a text.
func scalarArgument(v *value, p agg.Property, at string) (any, error) {
	switch v.kind {
	case jsontext.Number:
		return doubleArgument(v, p, at)
	case jsontext.String, jsontext.Word:
		return v.text, nil
	}
	return v.boolean(), nil
}

// thresholdsArgument reads [{"value":x,"boundary":"superior"|"inferior"}].
func thresholdsArgument(v *value, p agg.Property, at string) ([]agg.Threshold, error) {
	items, err := elements(v)
	if err != nil {
		return nil, err
	}
	thresholds := make([]agg.Threshold, len(items))
	for i := range items {
		item := &items[i]
		if item.kind != jsontext.Object {
			return nil, item.fault("java.lang.IllegalStateException: Expected BEGIN_OBJECT but was " + item.kind.String())
		}
		if x := item.member("value"); !absent(x) {
			if thresholds[i].Value, err = doubleArgument(x, p, at); err != nil {
				return nil, err
			}
		}
		boundary := item.member("boundary")
		if boundary == nil {
			continue
		}
		switch boundary.text {
		case "inferior":
			thresholds[i].Inferior = true
		case "superior":
		default:
			return nil, boundary.fault(at + "." + p.Name + " boundary must be 'superior' or 'inferior', not " + boundary.String())
		}
	}
	return thresholds, nil
}
