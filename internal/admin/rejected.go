package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"varve/internal/httpapi"
	"varve/internal/ingest"
)

// Rejected lists the route that shows refused input.
func Rejected(p *ingest.Pipeline) []httpapi.Route {
	return []httpapi.Route{httpapi.On(http.MethodGet, "/admin/rejected", httpapi.Admin, rejected(p)).Taking()}
}

// rejected answers with the latest refused inputs, newest first. It sends them one by
// one, so that a client that does not read holds no second copy of the text in memory.
func rejected(p *ingest.Pipeline) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		list, total := p.Rejected()
		w.Header().Set("Content-Type", "application/json;charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		fmt.Fprintf(w, "{\n \"total\": %d,\n \"rejected\": [", total)
		before, end := "\n  ", "]\n}\n"
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false) // for people; not HTML
		encoder.SetIndent("  ", " ")
		for i := range list {
			text.Reset()
			if err := encoder.Encode(&list[i]); err != nil {
				panic(err) // texts and numbers always marshal
			}
			io.WriteString(w, before)
			if _, err := w.Write(bytes.TrimSuffix(text.Bytes(), []byte("\n"))); err != nil {
				return
			}
			before, end = ",\n  ", "\n ]\n}\n"
		}
		io.WriteString(w, end)
	}
}
