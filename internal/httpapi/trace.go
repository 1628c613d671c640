package httpapi

import (
	"net/http"
	"strconv"
)

// TraceHeader asks for a trace, as the parameter trace does. Answers whose body has no
// place for it carry the trace in a header of this name.
const TraceHeader = "X-Varve-Trace"

// WantsTrace reports a request whose answer is to say where its time went.
func WantsTrace(r *http.Request) bool {
	texts := []string{r.Header.Get(TraceHeader)}
	if r.URL.RawQuery != "" {
		texts = append(texts, r.URL.Query().Get("trace"))
	}
	for _, text := range texts {
		if on, err := strconv.ParseBool(text); err == nil && on {
			return true
		}
	}
	return false
}
