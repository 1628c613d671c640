package auth

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"varve/internal/clip"
	"varve/internal/principal"
)

// Bounds on rules. For each sender without a token, all rules may be read.
const (
	maxRules     = 1000
	maxRuleBytes = 4096
)

// A rule grants rights to senders that have no token. It has one selector.
type rule struct {
	cn, san, user string // patterns in which * matches any text; "" does not select
	networks      []netip.Prefix
	streams       []string // to which the rule applies; nil: all, or all of lines
	lines         bool     // without streams, it applies to those of lines only
	grant         Grant
}

// A Kind is a kind of stream: which credentials its senders can show.
type Kind int

const (
	// Requests have headers with credentials.
	Requests Kind = iota

	// Lines have only their connection. An address rule without streams applies to
	// streams of this kind.
	Lines

	// Datagrams have an address, which anyone on the network can forge: an address rule
	// applies to them only if it names their stream.
	Datagrams
)

// parseRules parses all rules. The error lists the faults of all of them.
func parseRules(texts []string) ([]rule, error) {
	if len(texts) > maxRules {
		return nil, fmt.Errorf("rules: %d are given; want at most %d", len(texts), maxRules)
	}
	var rules []rule
	var errs []error
	for _, text := range texts {
		r, err := parseRule(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("rules: %q: %w", clip.Text(text, 200), err))
		}
		rules = append(rules, r)
	}
	return rules, errors.Join(errs...)
}

// parseRule parses a rule: words of the form KEY=VALUE.
func parseRule(text string) (r rule, err error) {
	if len(text) > maxRuleBytes {
		return r, fmt.Errorf("it has %d bytes; want at most %d", len(text), maxRuleBytes)
	}
	seen := map[string]bool{}
	for word := range strings.FieldsSeq(text) {
		key, value, ok := strings.Cut(word, "=")
		if !ok || value == "" {
			return r, fmt.Errorf("%q: want KEY=VALUE", word)
		}
		if seen[key] {
			return r, fmt.Errorf("%s is given twice", key)
		}
		seen[key] = true
		if err := r.set(key, value); err != nil {
			return r, err
		}
	}
	selectors := 0
	for _, key := range []string{"cn", "san", "user", "address"} {
		if seen[key] {
			selectors++
		}
	}
	switch {
	case selectors != 1:
		return r, errors.New("want one of cn=, san=, user= and address=")
	case !seen["role"]:
		return r, errors.New("role= is missing")
	case r.grant.Tenants == nil:
		r.grant.Tenants = DefaultTenants(r.grant.Rights)
	}
	r.lines = r.networks != nil
	return r, r.grant.check()
}

func (r *rule) set(key, value string) (err error) {
	switch key {
	case "cn":
		r.cn = value
	case "san":
		r.san = value
	case "user":
		r.user = value
	case "address":
		r.networks, err = ParseNetworks(list(value))
	case "role":
		r.grant.Rights, err = principal.ParseRights(value)
	case "tenant":
		r.grant.Tenants = list(value)
	case "prefix":
		r.grant.Prefix = value
	case "name":
		r.grant.Name = value
	case "stream":
		r.streams = list(value)
	default:
		err = fmt.Errorf("unknown key %q; want cn, san, user, address, role, tenant, prefix, stream or name", key)
	}
	return err
}

// list splits a value at commas and plus signs. Plus signs serve in flags and
// variables, where a comma ends the rule.
func list(value string) []string {
	return strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == '+' })
}

// ParseNetworks parses addresses, and ranges such as 10.0.0.0/8.
func ParseNetworks(texts []string) ([]netip.Prefix, error) {
	var networks []netip.Prefix
	for _, text := range texts {
		n, err := netip.ParsePrefix(text)
		if a, addrErr := netip.ParseAddr(text); addrErr == nil {
			n, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("address %q: want an address or a range, such as 10.0.0.5 or 10.0.0.0/8", text)
		}
		if n.Addr().Is4In6() { // IPv4 senders have their plain address
			const mapped = 96 // bits before the IPv4 address
			if n.Bits() < mapped {
				return nil, fmt.Errorf("address %q: the range contains more than IPv4 addresses; write the IPv4 range as such, for example 10.0.0.0/8, and the IPv6 range beside it", text)
			}
			n = netip.PrefixFrom(n.Addr().Unmap(), n.Bits()-mapped)
		}
		if n != n.Masked() {
			return nil, fmt.Errorf("address %q: bits after the prefix are set; did you mean %s?", text, n.Masked())
		}
		networks = append(networks, n)
	}
	if networks == nil {
		return nil, errors.New("address: want at least one")
	}
	return networks, nil
}

func contains(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(a) })
}

// on reports whether a rule applies to a stream.
func (r *rule) on(stream string, kind Kind) bool {
	if r.streams == nil {
		return !r.lines || kind == Lines
	}
	return slices.Contains(r.streams, stream)
}

// ofCertificate returns the name in a certificate that a rule matches, "" if there is
// none.
func (r *rule) ofCertificate(c *x509.Certificate) string {
	if r.cn != "" && matches(r.cn, c.Subject.CommonName) {
		return c.Subject.CommonName
	}
	if r.san == "" {
		return ""
	}
	for _, names := range [][]string{c.DNSNames, c.EmailAddresses} {
		for _, name := range names {
			if matches(r.san, name) {
				return name
			}
		}
	}
	for _, u := range c.URIs {
		if name := u.String(); matches(r.san, name) {
			return name
		}
	}
	return ""
}

// matches reports whether a non-empty name matches a pattern in which * matches any
// text.
func matches(pattern, name string) bool {
	if name == "" || len(name) > 1024 {
		return false
	}
	first, rest, starred := strings.Cut(pattern, "*")
	if !starred {
		return pattern == name
	}
	name, ok := strings.CutPrefix(name, first)
	for ok && starred {
		var part string
		part, rest, starred = strings.Cut(rest, "*")
		if !starred {
			return strings.HasSuffix(name, part)
		}
		_, name, ok = strings.Cut(name, part) // the first match leaves the most text for the other parts
	}
	return ok
}
