package admin

import (
	"log/slog"
	"net/http"
	"reflect"
	"strings"

	"varve/internal/config"
	"varve/internal/httpapi"
	"varve/internal/query"
	"varve/internal/retention"
)

// ReloadedRules are the policies and files that define how series are kept. Each tenant
// has a shelf with its rules.
func ReloadedRules(shelves map[string]*retention.Shelf, log *slog.Logger) ReloadedFiles {
	return ReloadedFiles{
		Name: "retention rules",
		Keys: []string{"retention.policies", "graphite.storage_schemas", "graphite.storage_aggregation"},
		Read: func(c config.Config) (func(), error) {
			book, err := c.Book(log)
			if err != nil {
				return nil, err
			}
			next := map[string]*retention.Book{}
			for tenant, shelf := range shelves {
				own := book.For(tenant)
				own.Enforced = shelf.Book().Enforced // needs a restart
				if !reflect.DeepEqual(own, shelf.Book()) {
					next[tenant] = own
				}
			}
			if len(next) == 0 {
				return nil, nil
			}
			return func() {
				for tenant, own := range next {
					changes := own.Changes(shelves[tenant].Book())
					shelves[tenant].Put(own)
					if text := strings.Join(changes, "; "); own.Enforced {
						log.Warn("retention rules changed: queries follow them now, but stored data stays as it is for a while; to undo the change, restore the former rules within that time",
							"tenant", tenant, "hold", retention.ChangeHold, "changes", text)
					} else {
						log.Info("retention rules changed", "tenant", tenant, "changes", text)
					}
				}
			}, nil
		},
	}
}

// maxPaths bounds the paths of a request for policies.
const maxPaths = 1000

// pathMemory is about the memory of the report of a path, and of its JSON.
const pathMemory = 2 << 10

// policiesAnswer is the answer of GET /admin/policies.
type policiesAnswer struct {
	Enforced bool               `json:"enforced"`
	Rules    int                `json:"rules"`
	Paths    []retention.Report `json:"paths"`
}

// Policies lists GET /admin/policies, which reports the rules of each path.
func Policies(shelf *retention.Shelf, queries *query.Engine, enforced bool) []httpapi.Route {
	return []httpapi.Route{httpapi.On(http.MethodGet, "/admin/policies", httpapi.Admin, func(w http.ResponseWriter, r *http.Request) {
		paths := r.URL.Query()["path"]
		if len(paths) == 0 || len(paths) > maxPaths {
			httpapi.WriteErrors(w, http.StatusBadRequest, "name one to 1,000 paths, as in /admin/policies?path=web.a.requests&path=disk.used%3Bhost%3Da")
			return
		}
		memory := queries.Unsent(r.Context(), r.RemoteAddr)
		defer memory.Free()
		if err := memory.AtLeast(int64(len(paths)) * pathMemory); err != nil {
			answer(w, r, nil, nil, err)
			return
		}
		book := shelf.Book()
		a := policiesAnswer{Enforced: enforced, Rules: len(book.Rules), Paths: []retention.Report{}}
		for _, path := range paths {
			a.Paths = append(a.Paths, book.Report(path))
		}
		answer(httpapi.WithBody(w, memory.Writer(w, httpapi.Cut(w))), r, nil, a, nil)
	})}
}
