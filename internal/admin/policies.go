package admin

import (
	"log/slog"
	"net/http"
	"reflect"

	"varve/internal/config"
	"varve/internal/httpapi"
	"varve/internal/retention"
)

// ReloadedRules are the files that say how series are kept.
func ReloadedRules(shelf *retention.Shelf, log *slog.Logger) ReloadedFiles {
	return ReloadedFiles{
		Name: "rules of retention",
		Keys: []string{"graphite.storage_schemas", "graphite.storage_aggregation"},
		Read: func(c config.Config) (func(), error) {
			book, err := c.Graphite.Book(log)
			if err != nil || reflect.DeepEqual(book, shelf.Book()) {
				return nil, err
			}
			return func() { shelf.Put(book) }, nil
		},
	}
}

// maxPaths bounds the paths of a request for policies.
const maxPaths = 1000

// policiesAnswer is the answer of GET /admin/policies.
type policiesAnswer struct {
	Enforced bool               `json:"enforced"`
	Rules    int                `json:"rules"`
	Paths    []retention.Report `json:"paths"`
}

// Policies lists GET /admin/policies, which says of each path which rule it has.
func Policies(shelf *retention.Shelf, enforced bool) []httpapi.Route {
	return []httpapi.Route{httpapi.On(http.MethodGet, "/admin/policies", httpapi.Admin, func(w http.ResponseWriter, r *http.Request) {
		paths := r.URL.Query()["path"]
		if len(paths) == 0 || len(paths) > maxPaths {
			httpapi.WriteErrors(w, http.StatusBadRequest, "name one to 1,000 paths, as in /admin/policies?path=web.a.requests&path=disk.used%3Bhost%3Da")
			return
		}
		book := shelf.Book()
		a := policiesAnswer{Enforced: enforced, Rules: len(book.Rules), Paths: []retention.Report{}}
		for _, path := range paths {
			a.Paths = append(a.Paths, book.Report(path))
		}
		answer(w, a, nil)
	})}
}
