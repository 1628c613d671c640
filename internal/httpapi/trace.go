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
	return isTrue(r.Header.Get(TraceHeader)) || r.URL.RawQuery != "" && isTrue(r.URL.Query().Get("trace"))
}

// isTrue reports whether a text says yes. It is mostly empty, for which ParseBool would make an error.
func isTrue(text string) bool {
	if text == "" {
		return false
	}
	on, err := strconv.ParseBool(text)
	return err == nil && on
}
