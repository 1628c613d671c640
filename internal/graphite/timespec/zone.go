package timespec

import (
	"strings"
	"time"
)

// Zone returns the time zone of a name. It ignores case, as Graphite does for the
// parameter tz: "europe/paris" is Europe/Paris. known is false for unknown names, "" and
// "local".
func Zone(name string) (zone *time.Location, known bool) {
	if name == "" || len(name) > maxText || strings.EqualFold(name, "local") {
		return nil, false
	}
	for _, spelling := range []string{name, strings.ToUpper(name), usualCase(name)} {
		if z, err := time.LoadLocation(spelling); err == nil {
			return z, true
		}
	}
	return nil, false
}

// unusual are the parts of zone names that are not one capital followed by small letters.
var unusual = func() map[string]string {
	words := map[string]string{}
	for word := range strings.FieldsSeq("of au es ACT LHI NSW GB GMT GMT0 UCT UTC US ComodRivadavia IN DumontDUrville McMurdo DeNoronha EasterIsland BajaNorte BajaSur") {
		words[strings.ToLower(word)] = word
	}
	return words
}()

// usualCase returns a name in the usual spelling of zones in an area: Area/Some_Place.
func usualCase(name string) string {
	var b strings.Builder
	name = strings.ToLower(name)
	for name != "" {
		end := strings.IndexAny(name, "/_-+")
		if end < 0 {
			end = len(name)
		}
		word := name[:end]
		if special, ok := unusual[word]; ok {
			word = special
		} else if word != "" {
			word = strings.ToUpper(word[:1]) + word[1:]
		}
		b.WriteString(word)
		b.WriteString(name[end:min(end+1, len(name))])
		name = name[min(end+1, len(name)):]
	}
	return b.String()
}
