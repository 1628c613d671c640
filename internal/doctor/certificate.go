package doctor

import (
	"crypto/tls"
	"fmt"
	"time"

	"varve/internal/config"
)

// renewBy is how long before its end a certificate should have been renewed.
const renewBy = 14 * 24 * time.Hour

// security looks at who is let in: certificates, and whether anybody is asked.
func security(c config.Config) (found []Finding) {
	if c.Server.Insecure && !c.Auth.Enabled {
		found = append(found, Finding{"authentication", Warning, "server.insecure is set: whoever reaches the listeners can do everything", "auth.enabled: true, and varve token create"})
	}
	if c.Server.TLS.CertFile != "" {
		found = append(found, certificate(c.Server.TLS.CertFile, c.Server.TLS.KeyFile, time.Now()))
	}
	return found
}

// certificate looks at that of the listeners.
func certificate(certFile, keyFile string, now time.Time) Finding {
	const check = "certificate"
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return Finding{check, Fault, err.Error(), "fix server.tls.cert_file and key_file; the server does not start with them"}
	}
	until := pair.Leaf.NotAfter
	text := fmt.Sprintf("%s, valid until %s", certFile, until.UTC().Format(time.RFC3339))
	switch {
	case now.After(until):
		return Finding{check, Fault, text + ", has expired", "renew it, then reload"}
	case now.Before(pair.Leaf.NotBefore):
		return Finding{check, Fault, text + ", and not before " + pair.Leaf.NotBefore.UTC().Format(time.RFC3339), "check the clock"}
	case until.Sub(now) < renewBy:
		return Finding{check, Warning, text, "renew it, then reload"}
	}
	return ok(check, "%s", text)
}
