package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"varve/internal/config"
	"varve/internal/httpapi"
)

// A reloadable is a setting that can change while the server runs.
type reloadable struct {
	key   string
	apply func(config.Config) error
}

// A reloader reads the configuration again and applies the settings that can change
// while the server runs.
type reloader struct {
	load     func() (*config.Loaded, error)
	settings []reloadable
	log      *slog.Logger

	mu      sync.Mutex    // one reload at a time
	running config.Config // the settings in force
}

// A reloadAnswer is the answer of POST /admin/reload: the keys of the settings that
// have changed.
type reloadAnswer struct {
	Applied      []string `json:"applied"`
	NeedsRestart []string `json:"needs_restart"`
}

func (r *reloader) reload() (reloadAnswer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	done := reloadAnswer{Applied: []string{}, NeedsRestart: []string{}}
	loaded, err := r.load()
	if err != nil {
		r.log.Warn("configuration not read again; all settings stay as they are", "error", err)
		return done, err
	}
	changed := config.Changed(&r.running, &loaded.Config)
	for _, s := range r.settings {
		if _, differs := changed[s.key]; !differs {
			continue
		}
		if err := s.apply(loaded.Config); err != nil {
			r.log.Warn("setting not applied; it and all settings after it stay as they are", "setting", s.key, "error", err,
				"applied", strings.Join(done.Applied, " "))
			return done, fmt.Errorf("apply %s: %w", s.key, err)
		}
		done.Applied = append(done.Applied, s.key)
		changed[s.key]()
		delete(changed, s.key)
	}
	for _, key := range config.Keys(&r.running) {
		if _, differs := changed[key]; differs {
			done.NeedsRestart = append(done.NeedsRestart, key)
		}
	}
	switch {
	case len(done.NeedsRestart) > 0:
		r.log.Warn("configuration read again; some changed settings need a restart to take effect",
			"applied", strings.Join(done.Applied, " "), "needs_restart", strings.Join(done.NeedsRestart, " "))
	case len(done.Applied) > 0:
		r.log.Info("configuration read again", "applied", strings.Join(done.Applied, " "))
	default:
		r.log.Info("configuration read again; no setting has changed")
	}
	return done, nil
}

// route is POST /admin/reload.
func (r *reloader) route() httpapi.Route {
	return httpapi.Route{Method: http.MethodPost, Path: "/admin/reload", Parameters: httpapi.None, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		done, err := r.reload()
		var usage *usageError
		if errors.As(err, &usage) {
			httpapi.WriteErrors(w, http.StatusBadRequest, err.Error())
			return
		}
		answer(w, done, err)
	})}
}

// onHangup reloads at each SIGHUP until ctx ends.
func (r *reloader) onHangup(ctx context.Context) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for {
		select {
		case <-hangups:
			_, _ = r.reload() // it is logged
		case <-ctx.Done():
			return
		}
	}
}
