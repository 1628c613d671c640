package main

import (
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"varve/internal/config"
)

func TestReload(t *testing.T) {
	loads := func(err error) func() (*config.Loaded, error) {
		return func() (*config.Loaded, error) { return &config.Loaded{Config: config.Default()}, err }
	}
	applies := func(err error) func(config.Config) (string, error) {
		return func(c config.Config) (string, error) { return "for " + c.Store, err }
	}
	for _, test := range []struct {
		name   string
		r      reloader
		status int
		want   string
	}{
		{"done", reloader{load: loads(nil), apply: applies(nil)}, 200, `{"applied":"for embedded"}`},
		{"a file with a fault", reloader{load: loads(&usageError{errors.New("line 3")}), apply: applies(nil)}, 400, "line 3"},
		{"not now", reloader{load: loads(nil), apply: applies(errors.New("busy"))}, 500, "busy"},
		{"nothing can change", reloader{load: loads(nil)}, 501, "start it again"},
	} {
		test.r.log = slog.New(slog.DiscardHandler)
		w := httptest.NewRecorder()
		test.r.route().Handler.ServeHTTP(w, httptest.NewRequest("POST", "/admin/reload", nil))
		if w.Code != test.status || !strings.Contains(w.Body.String(), test.want) {
			t.Errorf("%s: %d %s", test.name, w.Code, w.Body)
		}
	}
}
