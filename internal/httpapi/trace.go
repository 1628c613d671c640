package httpapi

import (
	"net/http"
	"strconv"
)

// TraceHeader asks for a trace, like the parameter trace. Answers whose body has no place
// for the trace have it in a header of this name.
const TraceHeader = "X-Varve-Trace"

// WantsTrace reports whether a request asks for a trace, which says where its time went.
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
