package kairos

import "strings"

// classNames are the class names that do not follow from the name in the API. KairosDB
// names its classes in messages, and clients show them.
var classNames = map[string]string{
	"dev":  "Std",
	"div":  "Divide",
	"gaps": "DataGapsMarking",
}

func aggregatorClass(name string) string {
	return "org.kairosdb.core.aggregator." + className(name) + "Aggregator"
}

func groupByClass(name string) string {
	return "org.kairosdb.core.groupby." + className(name) + "GroupBy"
}

func className(name string) string {
	if c, ok := classNames[name]; ok {
		return c
	}
	var b strings.Builder
	for word := range strings.SplitSeq(name, "_") {
		if word != "" {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}
