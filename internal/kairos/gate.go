package kairos

import (
	"fmt"
	"net/http"
	"strings"

	"varve/internal/failure"
	"varve/internal/httpapi"
	"varve/internal/kairos/agg"
)

// The classes of methods that Config.ServerType can turn off.
const (
	classIngest = "INGEST"
	classQuery  = "QUERY"
	classDelete = "DELETE"
)

// gated are the paths that belong to a class; the last three are not KairosDB's. All
// other paths are always served.
var gated = map[string]string{
	"/api/v1/datapoints":            classIngest,
	"/api/v1/datapoints/index":      classIngest,
	"/api/v1/datapoints/query":      classQuery,
	"/api/v1/datapoints/query/tags": classQuery,
	"/api/v1/metricnames":           classQuery,
	"/api/v1/tagnames":              classQuery,
	"/api/v1/tagvalues":             classQuery,
	"/api/v1/datapoints/delete":     classDelete,
	"/api/v1/metric/{name}":         classDelete,
	"/api/v1/import":                classIngest,
	"/api/v1/export":                classQuery,
	"/api/put":                      classIngest,
}

// serverClasses parses KairosDB's server.type: ALL or a list of classes.
func serverClasses(text string) (map[string]bool, error) {
	classes := map[string]bool{}
	for word := range strings.SplitSeq(text, ",") {
		switch word = strings.TrimSpace(word); word {
		case "ALL":
			classes[classIngest], classes[classQuery], classes[classDelete] = true, true, true
		case classIngest, classQuery, classDelete:
			classes[word] = true
		default:
			return nil, fmt.Errorf("kairos.server_type: %q: want ALL, or a list of INGEST, QUERY and DELETE", word)
		}
	}
	return classes, nil
}

// Gate makes routes of classes that c.ServerType excludes, and their preflights, answer
// 403, as KairosDB does. c must be valid.
func (c Config) Gate(routes []httpapi.Route) []httpapi.Route {
	open, _ := serverClasses(c.ServerType)
	kept := make([]httpapi.Route, len(routes))
	for i, r := range routes {
		if class := gated[r.Path]; class != "" && !open[class] {
			r.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				failure.Answer(w, r, nil, forbidden(class), httpapi.WriteErrors)
			})
		}
		kept[i] = r
	}
	return kept
}

// forbidden is the error of a request of an excluded class.
func forbidden(class string) error {
	return failure.New(http.StatusForbidden, "Forbidden: "+class+" API methods are disabled on this KairosDB instance.")
}

// mayRun refuses a query that saves points but may not write: a query by GET or HEAD,
// which browsers and proxies repeat and prefetch, a query of a web page that may only
// read, and any such query if the class INGEST is excluded.
func (a *API) mayRun(r *http.Request, q *agg.Query) error {
	for i := range q.Metrics {
		switch {
		case !q.Metrics[i].Saves():
		case r.Method != http.MethodPost:
			return badRequest("save_as writes; send the query by POST")
		case httpapi.IsReadOnly(r.Context()):
			return failure.New(http.StatusForbidden, "save_as writes, but the sender may only read; a token needs the role write, a web page needs an entry in server.allowed_origins")
		case !a.classes[classIngest]:
			return forbidden(classIngest)
		}
	}
	return nil
}
