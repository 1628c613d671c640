package server

import (
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/auth"
	"varve/internal/server/tlstest"
)

// TestRefusalsAreShownFromTheStart: a scrape has each reason to refuse a sender of a stream, or a handshake, before the
// first refusal.
func TestRefusalsAreShownFromTheStart(t *testing.T) {
	var registry *prometheus.Registry
	secured(t, tlstest.NewAuthority(t), func(o *Options) {
		registry = o.Registry
		var err error
		o.Keeper, err = auth.NewKeeper(auth.DefaultConfig(), auth.Options{
			TokenFile: filepath.Join(t.TempDir(), "tokens.json"), Registerer: registry, Logger: slog.New(slog.DiscardHandler), Now: time.Now,
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{} // by metric and stream
	for _, f := range families {
		for _, m := range f.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			key := f.GetName() + " " + labels["stream"]
			got[key] = append(got[key], labels["reason"])
		}
	}
	refusals := []string{"expired_token", "malformed", "missing_right", "no_credential", "no_rule", "prefix", "tenant", "unknown_token", "untrusted_certificate"}
	for key, want := range map[string][]string{
		"varve_auth_refused_total http":                 refusals,
		"varve_auth_ended_total http":                   {""},
		"varve_server_tls_handshakes_waiting ":          {""},
		"varve_server_tls_handshakes_failed_total http": {"certificate", "ended", "not_tls", "other", "timeout", "too_large"},
	} {
		if !slices.Equal(got[key], want) {
			t.Errorf("%s has %q, want %q", key, got[key], want)
		}
	}
}
