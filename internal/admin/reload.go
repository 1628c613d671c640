package admin

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
	"varve/internal/failure"
	"varve/internal/httpapi"
	"varve/internal/ingest"
	"varve/internal/query"
)

// A Reloadable is a setting that can change while the server runs.
type Reloadable struct {
	Key   string
	Apply func(config.Config) error
}

// ErrNeedsRestart is returned by Apply if this change of the setting only takes effect
// after a restart. The setting keeps its value.
var ErrNeedsRestart = errors.New("needs a restart")

// A Reloader reads the configuration again and applies the settings that can change
// while the server runs.
type Reloader struct {
	load     func() (*config.Loaded, error)
	settings []Reloadable
	files    []ReloadedFiles
	log      *slog.Logger

	mu      sync.Mutex    // one reload at a time
	running config.Config // the settings in force
}

// NewReloader returns the Reloader of a server that runs with the given configuration.
func NewReloader(running config.Config, load func() (*config.Loaded, error), log *slog.Logger, settings ...Reloadable) *Reloader {
	return &Reloader{load: load, settings: settings, log: log, running: running}
}

// Add adds settings. Call it before the Reloader is used.
func (r *Reloader) Add(settings ...Reloadable) { r.settings = append(r.settings, settings...) }

// ReloadedFiles are files that settings name, whose content may have changed. read
// reads them without effect; the function that it returns puts them in force, and is
// nil if nothing has changed.
type ReloadedFiles struct {
	Name string // in answers and log lines
	Keys []string
	Read func(config.Config) (apply func(), err error)
}

// AddFiles adds files. Call it before the Reloader is used.
func (r *Reloader) AddFiles(files ...ReloadedFiles) { r.files = append(r.files, files...) }

// readFiles reads all files. After an error, none of them takes effect.
func (r *Reloader) readFiles(c config.Config) (map[string]func(), error) {
	applies := map[string]func(){}
	for _, f := range r.files {
		apply, err := f.Read(c)
		if err != nil {
			return nil, err
		}
		if apply != nil {
			applies[f.Name] = apply
		}
	}
	return applies, nil
}

// A reloadAnswer is the answer of POST /admin/reload: the keys of the settings that
// have changed.
type reloadAnswer struct {
	Applied      []string `json:"applied"`
	NeedsRestart []string `json:"needs_restart"`
}

func (r *Reloader) reload() (reloadAnswer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	done := reloadAnswer{Applied: []string{}, NeedsRestart: []string{}}
	loaded, err := r.load()
	if err != nil {
		r.log.Warn("reload failed: the configuration is invalid; all settings keep their values", "error", err)
		return done, failure.New(http.StatusBadRequest, err.Error())
	}
	files, err := r.readFiles(loaded.Config)
	if err != nil {
		r.log.Warn("reload failed: a file is invalid; all settings keep their values", "error", err)
		return done, failure.New(http.StatusBadRequest, err.Error())
	}
	changed := config.Changed(&r.running, &loaded.Config)
	for _, s := range r.settings {
		if _, differs := changed[s.Key]; !differs {
			continue
		}
		err := s.Apply(loaded.Config)
		if errors.Is(err, ErrNeedsRestart) {
			continue
		}
		if err != nil {
			r.log.Warn("cannot apply a setting; it and all settings after it keep their values", "setting", s.Key, "error", err,
				"applied", strings.Join(done.Applied, " "))
			return done, fmt.Errorf("apply %s: %w", s.Key, err)
		}
		done.Applied = append(done.Applied, s.Key)
		changed[s.Key]()
		delete(changed, s.Key)
	}
	for _, f := range r.files {
		if apply := files[f.Name]; apply != nil {
			apply()
			done.Applied = append(done.Applied, f.Name)
		}
		for _, key := range f.Keys {
			if take, differs := changed[key]; differs {
				take()
				delete(changed, key)
			}
		}
	}
	for _, key := range config.Keys(&r.running) {
		if _, differs := changed[key]; differs {
			done.NeedsRestart = append(done.NeedsRestart, key)
		}
	}
	switch {
	case len(done.NeedsRestart) > 0:
		r.log.Warn("configuration reloaded; some changed settings need a restart to take effect",
			"applied", strings.Join(done.Applied, " "), "needs_restart", strings.Join(done.NeedsRestart, " "))
	case len(done.Applied) > 0:
		r.log.Info("configuration reloaded", "applied", strings.Join(done.Applied, " "))
	default:
		r.log.Info("configuration reloaded; no setting has changed")
	}
	return done, nil
}

// Routes lists POST /admin/reload.
func (r *Reloader) Routes() []httpapi.Route {
	return []httpapi.Route{httpapi.On(http.MethodPost, "/admin/reload", httpapi.Admin, r.serve).Taking().OfServer()}
}

func (r *Reloader) serve(w http.ResponseWriter, req *http.Request) {
	done, err := r.reload()
	answer(w, req, r.log, done, err)
}

// Hangups has an element after a SIGHUP for which there was no reload yet.
type Hangups chan os.Signal

// CatchHangups makes SIGHUP no longer end the process, for as long as it lives. A SIGHUP may also
// arrive while the server starts or stops, for example from a program that renews certificates.
func CatchHangups() Hangups {
	h := make(Hangups, 1)
	signal.Notify(h, syscall.SIGHUP)
	return h
}

// ReloadAt reloads at each hangup until ctx ends, and calls notify before and after each reload.
func (r *Reloader) ReloadAt(ctx context.Context, hangups Hangups, notify func(reloading bool)) {
	for {
		select {
		case <-hangups:
			notify(true)
			_, _ = r.reload() // reload logs its error
			notify(false)
		case <-ctx.Done():
			return
		}
	}
}

// ReloadableLimits are the limits that an operator adjusts in an incident. Limits that
// are set together are applied together.
func ReloadableLimits(engine *query.Engine, pipeline *ingest.Pipeline) (limits []Reloadable) {
	add := func(apply func(config.Config), keys ...string) {
		for _, key := range keys {
			limits = append(limits, Reloadable{key, func(c config.Config) error { apply(c); return nil }})
		}
	}
	add(func(c config.Config) { engine.SetLimits(c.Query) }, "query.max_series", "query.max_samples", "query.max_memory",
		"query.timeout", "query.max_concurrent", "query.max_wait", "query.slow")
	add(func(c config.Config) { pipeline.SetSeriesLimits(c.Ingest) },
		"ingest.max_series", "ingest.max_series_memory", "ingest.new_series_per_second")
	add(func(c config.Config) { pipeline.SetSampleRate(c.Ingest.SamplesPerSecond) }, "ingest.samples_per_second")
	return limits
}
