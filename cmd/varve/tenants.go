package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"varve/internal/config"
	"varve/internal/embedded/datadir"
	"varve/internal/principal"
	"varve/internal/store"
)

// The store of the default tenant remembers the tenants whose stores are in its directory:
//
//	service    service key   key
//	_Tenants   names         acme
//
// A backup of the default tenant's store has none of the other stores. Without this list, a
// start from such a backup would create new stores, and answer as if those tenants had never
// sent anything.
const (
	tenantsService = "_Tenants"
	tenantsKey     = "names"
)

// A census compares the tenants of a configuration with those that have a directory.
type census struct {
	config config.Config
	values store.KeyValues
	log    *slog.Logger
	known  map[string]bool // by the store
}

// openCensus returns an error if the directory of a tenant is missing, or if points or events of a
// tenant that is not in the configuration wait for Cassandra. It logs which tenants have data, but
// are not in the configuration. Over Cassandra there is nothing else to compare, and the census is nil.
func openCensus(ctx context.Context, c config.Config, s store.Store, log *slog.Logger) (*census, error) {
	if err := checkUnlisted(c); err != nil {
		return nil, err
	}
	values, ok := store.As[store.KeyValues](s)
	if !ok || c.Store == config.Cassandra {
		return nil, nil
	}
	taken := &census{config: c, values: values, log: log, known: map[string]bool{}}
	for name, err := range values.Keys(ctx, tenantsService, tenantsKey, "") {
		if err != nil {
			return nil, fmt.Errorf("read the list of tenants: %w", err)
		}
		taken.known[name] = true
	}
	taken.tellUnlisted()
	return taken, taken.checkKnown(ctx)
}

// checkKnown looks for the directories of all tenants that the server has had. It forgets a tenant
// that has no directory and is not in the configuration.
func (c *census) checkKnown(ctx context.Context) error {
	var errs []error
	for name := range c.known {
		dir := config.TenantDir(c.config.DataDir, name)
		switch _, err := os.Stat(dir); {
		case err == nil:
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, fmt.Errorf("look for the data of tenant %s: %w", name, err))
		case c.config.HasTenant(name):
			errs = append(errs, fmt.Errorf("the data of tenant %s is missing: there is no %s; restore it from the earlier data directory or from a backup of this tenant; to start without its data, make an empty directory there", name, dir))
		default:
			delete(c.known, name)
			c.tell("forget a tenant whose data was removed", name, c.values.Unset(ctx, tenantsService, tenantsKey, name))
		}
	}
	return errors.Join(errs...)
}

// opened remembers a tenant whose store is open.
func (c *census) opened(ctx context.Context, name string) {
	if c == nil || c.known[name] {
		return
	}
	c.known[name] = true
	c.tell("remember a tenant", name, c.values.Set(ctx, tenantsService, tenantsKey, name, ""))
}

// tell logs that the list could not be changed. The next start tries again.
func (c *census) tell(doing, name string, err error) {
	if err != nil {
		c.log.Warn("cannot "+doing+"; the next start tries again", "tenant", name, "error", err)
	}
}

// checkUnlisted reports points and events that wait for Cassandra in directories of tenants that are not in
// the configuration.
func checkUnlisted(c config.Config) error {
	parent := filepath.Dir(config.TenantDir(c.DataDir, "any"))
	dirs, err := os.ReadDir(parent)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for data of tenants: %w", err)
	}
	var errs []error
	for _, dir := range dirs {
		name := dir.Name()
		if dir.IsDir() && !c.HasTenant(name) && principal.CheckTenant(name) == nil { // not lost+found
			of := c
			of.DataDir = filepath.Join(parent, name)
			errs = append(errs, checkLeftSpools(of, fmt.Sprintf("but tenants no longer has %s. "+
				"Start with this tenant and POST /t/%s/admin/flush; or remove the directory, and they are lost", name, name)))
		}
	}
	return errors.Join(errs...)
}

// tellUnlisted logs which tenants have a store that no sender can reach.
func (c *census) tellUnlisted() {
	parent := filepath.Dir(config.TenantDir(c.config.DataDir, "any"))
	dirs, err := os.ReadDir(parent)
	if err != nil {
		return // usually because there never was a tenant
	}
	var names []string
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(parent, dir.Name(), datadir.Catalogue)); err == nil && !c.config.HasTenant(dir.Name()) {
			names = append(names, dir.Name())
		}
	}
	if len(names) > 0 {
		c.log.Warn("the data directory has data of tenants that are not in the configuration (tenants), so nobody can reach it; add them again, or remove their directories while the server is stopped",
			"tenants", strings.Join(names, " "), "dir", parent)
	}
}
