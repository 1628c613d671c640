package auth

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"varve/internal/clip"
	"varve/internal/units"
)

// Config are the settings of authentication.
type Config struct {
	Enabled     bool     `yaml:"enabled" doc:"Requires every sender to authenticate. Health, version and the welcome page stay open; everything else needs a token or a rule. varve token create makes a token."`
	TokenFile   string   `yaml:"token_file" doc:"File with the hashes of the tokens. Empty: tokens.json in data_dir. A change takes effect within a second."`
	Rules       []string `yaml:"rules" doc:"What senders without a token may do. Each rule is SELECTOR role=ROLES, optionally followed by tenant=, prefix= (of metrics), stream= and name=. SELECTOR is cn=PATTERN or san=PATTERN of a client certificate (server.tls.client_ca_file), address=RANGE, or user=PATTERN for the user that a proxy names. The first rule that matches applies. An address rule applies to line protocols such as telnet, carbon and pickle unless stream= names other listeners, such as http or carbon_udp. Example: address=10.0.0.0/8 stream=carbon role=write prefix=servers."`
	Proxies     []string `yaml:"proxies" doc:"Addresses or ranges of proxies that name the user in proxy_header. From other addresses the header is ignored."`
	ProxyHeader string   `yaml:"proxy_header" default:"X-Forwarded-User" doc:"Header in which proxies name the user."`
}

// DefaultConfig returns settings without authentication.
func DefaultConfig() Config { return units.Defaults[Config]() }

// TakesDatagrams reports whether a rule lets a sender use a UDP stream. c must be
// valid.
func (c Config) TakesDatagrams(stream string) bool {
	rules, _ := parseRules(c.Rules)
	return slices.ContainsFunc(rules, func(r rule) bool { return r.networks != nil && r.on(stream, Datagrams) })
}

// CheckStreams reports rules for streams other than these.
func (c Config) CheckStreams(names []string) (errs []error) {
	rules, _ := parseRules(c.Rules)
	for i, r := range rules {
		for _, s := range r.streams {
			if !slices.Contains(names, s) {
				errs = append(errs, fmt.Errorf("rules: %q: stream %.100q: want some of %s", clip.Text(c.Rules[i], 200), s, strings.Join(names, ", ")))
			}
		}
	}
	return errs
}

// CheckTenants reports rules for tenants that do not exist.
func (c Config) CheckTenants(there func(name string) bool) (errs []error) {
	rules, _ := parseRules(c.Rules)
	for i, r := range rules {
		for _, name := range Missing(r.grant.Tenants, there) {
			errs = append(errs, fmt.Errorf("rules: %q: there is no tenant %.100q; the key tenants lists them", clip.Text(c.Rules[i], 200), name))
		}
	}
	return errs
}

// Missing returns the tenants of a rule or token that do not exist.
func Missing(tenants []string, there func(name string) bool) (missing []string) {
	for _, name := range tenants {
		if name != AnyTenant && !there(name) {
			missing = append(missing, name)
		}
	}
	return missing
}

// headerName matches what may name a header (RFC 9110, 5.6.2). No request has another one.
var headerName = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")

// Validate reports all invalid settings.
func (c Config) Validate() error {
	var errs []error
	if _, err := parseRules(c.Rules); err != nil {
		errs = append(errs, err)
	}
	if len(c.Proxies) > 0 {
		if _, err := ParseNetworks(c.Proxies); err != nil {
			errs = append(errs, fmt.Errorf("proxies: %w", err))
		}
	}
	switch {
	case c.ProxyHeader == "":
		errs = append(errs, errors.New("proxy_header: empty; want the name of a header"))
	case !headerName.MatchString(c.ProxyHeader):
		errs = append(errs, fmt.Errorf("proxy_header: %.100q: want the name of a header, such as X-Forwarded-User", c.ProxyHeader))
	}
	return errors.Join(errs...)
}
