package auth

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"varve/internal/principal"
)

// AnyTenant in a grant's list of tenants means all of them. Only such a grant has
// rights on the server as a whole.
const AnyTenant = "*"

const (
	maxName    = 100 // bytes
	maxPrefix  = 1024
	maxTenants = 1000
)

// A Grant is the rights of a token or a rule.
type Grant struct {
	Name    string // of the sender
	Rights  principal.Rights
	Tenants []string // the first is the default of requests that name none
	Prefix  string   // of metrics
}

func (g *Grant) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(g.Name) > maxName || strings.ContainsFunc(g.Name, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd }) {
		bad("name %.100q: want at most %d bytes of text", g.Name, maxName)
	}
	if len(g.Prefix) > maxPrefix {
		bad("prefix: it has %d bytes; want at most %d", len(g.Prefix), maxPrefix)
	}
	if g.Prefix != "" && g.Rights&(principal.Admin|principal.Metrics) != 0 {
		bad("prefix: the roles admin and metrics cannot be limited to some metrics; leave out the prefix, or these roles")
	}
	if len(g.Tenants) == 0 || len(g.Tenants) > maxTenants {
		bad("tenants: there are %d; want 1 to %d", len(g.Tenants), maxTenants)
	}
	for _, t := range g.Tenants {
		if t == AnyTenant && len(g.Tenants) == 1 {
			continue
		}
		if t == AnyTenant {
			bad("tenants: * stands for all; leave out the others")
			continue
		}
		if err := principal.CheckTenant(t); err != nil {
			errs = append(errs, fmt.Errorf("tenant %w", err))
		}
	}
	return errors.Join(errs...)
}

// DefaultTenants are the tenants of a grant that names none: all for the roles that run
// the server.
func DefaultTenants(r principal.Rights) []string {
	if r&(principal.Admin|principal.Metrics) != 0 {
		return []string{AnyTenant}
	}
	return []string{principal.Default}
}

// whole reports whether g has rights on the server as a whole.
func (g *Grant) whole() bool { return g.Tenants[0] == AnyTenant }

// tenant returns the tenant of a request that asks for one, or for none (""). ok is
// false if the sender may not use it.
func (g *Grant) tenant(asked string) (tenant string, ok bool) {
	switch {
	case asked == "" && g.whole():
		return principal.Default, true
	case asked == "":
		return g.Tenants[0], true
	}
	return asked, g.whole() || slices.Contains(g.Tenants, asked)
}
