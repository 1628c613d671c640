package carbon

import (
	"bytes"
	"strings"

	"varve/internal/ingest"
	"varve/internal/model"
)

var (
	faultNoName   = ingest.Faultf(ingest.BadName, "the metric name is empty")
	faultControl  = ingest.Faultf(ingest.BadName, "the path has a control character")
	faultTagForm  = ingest.Faultf(ingest.BadTag, "a tag must be written as name=value, with neither part empty")
	faultTagName  = ingest.Faultf(ingest.BadTag, "a tag name must not have ; ! ^ or =")
	faultTagValue = ingest.Faultf(ingest.BadTag, "a tag value must not have ; and must not begin with ~")
	faultBraces   = ingest.Faultf(ingest.BadTag, `tags in braces must be written as {name="value",name="value"}`)
)

// ParsePath reads the metric and the tags of a path. Names share its memory where they
// can. Tags may be given in Graphite's form, name;tag=value, or in that of OpenMetrics,
// name{tag="value"}. Of a tag that is given twice the last value counts; a tag "name"
// is the metric itself, and is dropped.
//
// Empty nodes are removed from the metric, so that a..b and .a.b. become a.b. If
// the series has tags, a leading ~ of the metric is removed too.
func ParsePath(path []byte, n *ingest.Names, most int) *ingest.Fault {
	for _, c := range path {
		if c < ' ' || c == 0x7f {
			return faultControl
		}
	}
	metric, tags, tagged := bytes.Cut(path, []byte{';'})
	if open := bytes.IndexByte(path, '{'); open >= 0 && bytes.HasSuffix(path, []byte(`"}`)) {
		metric = path[:open]
		if f := parseBraces(path[open+1:len(path)-1], n, most); f != nil {
			return f
		}
		tagged = true
	} else if tagged {
		if f := parseTags(tags, n, most); f != nil {
			return f
		}
	}
	if tagged {
		metric = bytes.TrimLeft(metric, "~")
	}
	if n.Metric = clean(ingest.View(metric)); n.Metric == "" {
		return faultNoName
	}
	return nil
}

// parseTags reads tag=value;tag=value. It stops at the first tag beyond most, which
// the pipeline refuses.
func parseTags(tags []byte, n *ingest.Names, most int) *ingest.Fault {
	for more := true; more && len(n.Tags) <= most; {
		var tag []byte
		tag, tags, more = bytes.Cut(tags, []byte{';'})
		name, value, ok := bytes.Cut(tag, []byte{'='})
		if !ok {
			return faultTagForm
		}
		if f := addTag(n, ingest.View(name), ingest.View(value)); f != nil {
			return f
		}
	}
	return nil
}

// parseBraces reads tag="value",tag="value", in whose values \" and \\ are escapes.
func parseBraces(tags []byte, n *ingest.Names, most int) *ingest.Fault {
	for len(tags) > 0 && len(n.Tags) <= most {
		name, rest, ok := bytes.Cut(tags, []byte(`="`))
		if !ok {
			return faultBraces
		}
		var value []byte
		end := 0
		for ; end < len(rest) && rest[end] != '"'; end++ {
			if rest[end] == '\\' && end+1 < len(rest) && (rest[end+1] == '"' || rest[end+1] == '\\') {
				end++
			}
			value = append(value, rest[end])
		}
		if end == len(rest) {
			return faultBraces
		}
		if f := addTag(n, ingest.View(name), string(value)); f != nil {
			return f
		}
		if tags = rest[end+1:]; len(tags) == 0 {
			return nil
		}
		if tags, ok = bytes.CutPrefix(tags, []byte{','}); !ok {
			return faultBraces
		}
	}
	return nil
}

func addTag(n *ingest.Names, name, value string) *ingest.Fault {
	switch {
	case name == "" || value == "":
		return faultTagForm
	case strings.ContainsAny(name, ";!^="):
		return faultTagName
	case value[0] == '~' || strings.IndexByte(value, ';') >= 0:
		return faultTagValue
	case name == "name":
		return nil
	}
	for i := range n.Tags {
		if n.Tags[i].Name == name {
			n.Tags[i].Value = value
			return nil
		}
	}
	n.Tags = append(n.Tags, model.Tag{Name: name, Value: value})
	return nil
}

// clean removes empty nodes.
func clean(metric string) string {
	if metric == "" || metric[0] != '.' && metric[len(metric)-1] != '.' && !strings.Contains(metric, "..") {
		return metric
	}
	nodes := strings.FieldsFunc(metric, func(r rune) bool { return r == '.' })
	return strings.Join(nodes, ".")
}
