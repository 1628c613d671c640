package main

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"varve/internal/config"
)

// A reload applies the settings that it can and names those that need a restart.
// The log says what the reload did, also if it changed nothing.
func TestReload(t *testing.T) {
	load := func(change func(*config.Config), err error) func() (*config.Loaded, error) {
		return func() (*config.Loaded, error) {
			loaded := &config.Loaded{Config: config.Default()}
			if change != nil {
				change(&loaded.Config)
			}
			return loaded, err
		}
	}
	raise := func(c *config.Config) { c.Log.Level = slog.LevelError }
	both := func(c *config.Config) { raise(c); c.Query.MaxSeries++; c.Server.AllowedOrigins = []string{"*"} }
	for _, test := range []struct {
		name   string
		load   func() (*config.Loaded, error)
		fault  error
		status int
		want   string
		log    string
	}{
		{"done", load(raise, nil), nil, 200, `{"applied":["log.level"],"needs_restart":[]}`, `configuration read again" applied=log.level`},
		{"a part", load(both, nil), nil, 200, `{"applied":["log.level"],"needs_restart":["server.allowed_origins","query.max_series"]}`, `needs_restart="server.allowed_origins query.max_series"`},
		{"nothing", load(nil, nil), nil, 200, `{"applied":[],"needs_restart":[]}`, "no setting has changed"},
		{"a file with a fault", load(raise, &usageError{errors.New("line 3")}), nil, 400, "line 3", "not read again"},
		{"not now", load(raise, nil), errors.New("busy"), 500, "apply log.level: busy", "not applied"},
	} {
		var log bytes.Buffer
		applied := 0
		r := &reloader{
			load: test.load, running: config.Default(), log: slog.New(slog.NewTextHandler(&log, nil)),
			settings: []reloadable{{"log.level", func(c config.Config) error { applied++; return test.fault }}},
		}
		for i := range 2 {
			w := httptest.NewRecorder()
			r.route().Handler.ServeHTTP(w, httptest.NewRequest("POST", "/admin/reload", nil))
			if i == 0 && (w.Code != test.status || !strings.Contains(w.Body.String(), test.want)) {
				t.Errorf("%s: %d %s", test.name, w.Code, w.Body)
			}
			if i == 1 && test.fault == nil && applied > 1 {
				t.Errorf("%s: applied twice", test.name)
			}
		}
		if !strings.Contains(log.String(), test.log) {
			t.Errorf("%s: the log says %s", test.name, log.String())
		}
	}
}
