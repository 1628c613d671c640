package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"varve/internal/config"
	"varve/internal/httpapi"
)

// A reloader reads the configuration again and applies what can change while the
// server runs.
type reloader struct {
	load  func() (*config.Loaded, error)
	apply func(config.Config) (string, error) // nil: nothing can
	log   *slog.Logger
}

var errNothingToReload = errors.New("no setting of this store can change while the server runs; start it again")

func (r *reloader) reload() (done string, err error) {
	if r.apply == nil {
		return "", errNothingToReload
	}
	loaded, err := r.load()
	if err == nil {
		done, err = r.apply(loaded.Config)
	}
	if err != nil {
		r.log.Warn("the configuration was not read again", "error", err)
		return "", err
	}
	r.log.Info("the configuration was read again", "applied", done)
	return done, nil
}

// route is POST /admin/reload.
func (r *reloader) route() httpapi.Route {
	return httpapi.Route{Method: http.MethodPost, Path: "/admin/reload", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		done, err := r.reload()
		var usage *usageError
		switch {
		case errors.Is(err, errNothingToReload):
			httpapi.WriteErrors(w, http.StatusNotImplemented, err.Error())
		case errors.As(err, &usage):
			httpapi.WriteErrors(w, http.StatusBadRequest, err.Error())
		default:
			answer(w, map[string]string{"applied": done}, err)
		}
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
