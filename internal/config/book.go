package config

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"

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
	if filepath.Base(parent) == "tenants" && c.HasTenant(name) {
		return name
	}
	return principal.Default
}

// HasTenant reports whether a tenant is the default one or in the list.
func (c Config) HasTenant(name string) bool {
	return name == principal.Default || slices.ContainsFunc(c.Tenants, func(t tenant.Config) bool { return t.Name == name })
}

// checkPolicies reports policies for tenants that are not there.
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
