// Package principal says on whose behalf work is done, and what that sender may do. The
// server puts a [Principal] into the context of each request and connection; writers,
// queries and stores find it there.
package principal

import (
	"context"
	"fmt"
	"strings"
)

// Default is the tenant of senders that name no other tenant.
const Default = "default"

// Rights are what a sender may do.
type Rights uint8

const (
	Read    Rights = 1 << iota // samples, names, metadata
	Write                      // the same
	Delete                     // the same
	Admin                      // what operators do and see; it includes all other rights
	Metrics                    // the server's own metrics, for a scraper

	All = Read | Write | Delete | Admin | Metrics
)

var rightNames = [...]string{"read", "write", "delete", "admin", "metrics"}

// ParseRights reads rights as String writes them. + may stand for the comma.
func ParseRights(text string) (Rights, error) {
	var all Rights
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == '+' || r == ' ' }) {
		right := Rights(0)
		for i, name := range rightNames {
			if word == name {
				right = 1 << i
			}
		}
		if right == 0 {
			return 0, fmt.Errorf("role %q: want %s, or several of them", word, strings.Join(rightNames[:], ", "))
		}
		all |= right
	}
	if all == 0 {
		return 0, fmt.Errorf("no role: want %s, or several of them", strings.Join(rightNames[:], ", "))
	}
	return all, nil
}

func (r Rights) String() string {
	var names []string
	for i, name := range rightNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// Has reports whether r includes a right.
func (r Rights) Has(right Rights) bool { return r&(right|Admin) != 0 }

// A Principal is the sender of a request. The zero Principal is the server itself,
// for work without a client: roll-ups and maintenance.
type Principal struct {
	Tenant string // the tenant whose data is used
	Name   string // of the sender; "" without authentication
	Rights Rights
	Prefix string // the metrics that the sender reaches begin with it
}

// Everyone stands for every sender while authentication is off.
var Everyone = Principal{Tenant: Default, Rights: All}

// Reaches reports whether p may use a metric.
func (p Principal) Reaches(metric string) bool { return strings.HasPrefix(metric, p.Prefix) }

// Check returns a *ForbiddenError for the first metric that p may not use, nil if there is none.
// The store checks each metric again when it is read. A request for several metrics is checked before
// its answer begins, because later the answer could only be cut off.
func (p Principal) Check(metrics ...string) error {
	for _, m := range metrics {
		if !p.Reaches(m) {
			return &ForbiddenError{Metric: m, By: p}
		}
	}
	return nil
}

// A ForbiddenError says that a sender may not use a metric. It does not tell whether the
// metric exists.
type ForbiddenError struct {
	Metric string
	By     Principal
}

func (e *ForbiddenError) Error() string {
	return fmt.Sprintf("metric %.200q: %s may only use metrics that begin with %q", e.Metric, e.By.Name, e.By.Prefix)
}

// Key is the key of the *Principal in a context, for types that implement context.Context
// themselves.
type Key struct{}

// With returns a context of work on behalf of p.
func With(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, Key{}, &p)
}

// Of returns the principal on whose behalf ctx is.
func Of(ctx context.Context) Principal {
	if p, ok := ctx.Value(Key{}).(*Principal); ok {
		return *p
	}
	return Principal{}
}

// CheckTenant says why a text cannot be the name of a tenant, nil if it can. Names stand
// in paths, in directories and in names of keyspaces.
func CheckTenant(name string) error {
	ok := name != "" && len(name) <= maxTenant && name[0] >= 'a' && name[0] <= 'z'
	for _, r := range name {
		ok = ok && (r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_')
	}
	if !ok {
		return fmt.Errorf("%.70q: want a lower-case letter, then up to %d lower-case letters, digits and underscores", name, maxTenant-1)
	}
	return nil
}

const maxTenant = 32
