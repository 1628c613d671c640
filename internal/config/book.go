package config

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"varve/internal/embedded/datadir"
	"varve/internal/principal"
	"varve/internal/retention"
	"varve/internal/tenant"
)

// Book returns the rules of all tenants: the policies of the configuration, then those of
// the files of a Graphite installation, which it reads. See retention.Book.For.
func (c Config) Book(log *slog.Logger) (*retention.Book, error) {
	policies, err := c.Retention.Rules()
	if err != nil {
		return nil, err
	}
	book, err := c.Graphite.Book(log)
	if err != nil {
		return nil, err
	}
	book.Rules = append(policies, book.Rules...)
	book.Enforced = c.Retention.Enforce
	return book, nil
}

// TenantOf returns the name of the tenant whose data is in a directory: see TenantDir.
func (c Config) TenantOf(dir string) string {
	parent, name := filepath.Split(filepath.Clean(dir))
	if filepath.Base(parent) == datadir.Tenants && c.HasTenant(name) {
		return name
	}
	return principal.Default
}

// HasTenant reports whether a tenant is the default one or in the list.
func (c Config) HasTenant(name string) bool {
	return name == principal.Default || slices.ContainsFunc(c.Tenants, func(t tenant.Config) bool { return t.Name == name })
}

// checkPolicies reports policies for tenants that do not exist.
func (c Config) checkPolicies() error {
	for i, p := range c.Retention.Policies {
		for _, name := range p.Tenants {
			if !c.HasTenant(name) {
				return fmt.Errorf("retention.policies[%d].tenants: there is no tenant %.100q", i, name)
			}
		}
	}
	return nil
}

// checkBackups reports a backup directory that is among the files of the store. A backup there
// could have the name of a file that the store creates later, or be mistaken for a file of the
// store.
func (c Config) checkBackups() error {
	if c.Store != Embedded || c.Embedded.BackupDir == "" {
		return nil
	}
	data, err := filepath.Abs(c.DataDir)
	if err != nil {
		return nil // the store reports it
	}
	backups, err := filepath.Abs(c.Embedded.BackupDir)
	if err != nil {
		return nil
	}
	own := filepath.Join(data, datadir.Backups)
	if !isBelow(backups, data) || isBelow(backups, own) {
		return nil
	}
	return fmt.Errorf("embedded.backup_dir: %s is inside the data directory, where only %s may hold backups; name a directory outside of it", c.Embedded.BackupDir, own)
}

// isBelow reports whether a directory is another one, or below it. Both paths are absolute.
func isBelow(dir, top string) bool {
	rel, err := filepath.Rel(top, dir)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}
