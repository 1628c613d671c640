package doctor

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"varve/internal/auth"
	"varve/internal/config"
	"varve/internal/server"
)

// renewBy is how long before its expiry a certificate should be renewed.
const renewBy = 14 * 24 * time.Hour

// security checks authentication and certificates.
func security(c config.Config) (found []Finding) {
	if c.Server.Insecure && !c.Auth.Enabled {
		found = append(found, Finding{"authentication", Warning, "server.insecure is set: anyone who can reach the listeners can do everything", "auth.enabled: true, and varve token create"})
	}
	found = append(found, exposed(c)...)
	if c.Server.TLS.CertFile != "" {
		own := certificate(c.Server.TLS.CertFile, c.Server.TLS.KeyFile, time.Now())
		found = append(found, own)
		if c.Server.TLS.ClientCAFile != "" && own.Grade != Fault {
			found = append(found, authorities(c.Server.TLS))
		}
	}
	return found
}

// exposed finds listeners that the server refuses to open, because other machines could reach
// them while authentication is off. ports reports addresses that do not resolve.
func exposed(c config.Config) (found []Finding) {
	if c.Auth.Enabled || c.Server.Insecure {
		return nil
	}
	for _, a := range c.Server.Addresses() {
		if a.Addr == "" {
			continue
		}
		if addr, err := net.ResolveTCPAddr("tcp", a.Addr); err == nil && !addr.IP.IsLoopback() {
			found = append(found, Finding{"authentication", Fault,
				fmt.Sprintf("server.%s: other machines can reach %s, and authentication is off; the server does not start", a.Key, a.Addr),
				"listen on a loopback address; or set auth.enabled: true and use varve token create; or, if only trusted machines reach it, server.insecure: true"})
		}
	}
	return found
}

// files checks the token file and the audit log.
func files(c config.Config) (found []Finding) {
	if c.Auth.Enabled {
		found = append(found, tokens(c.Auth, c.DataDir))
	}
	if path := c.Audit.Path(c.DataDir); path != "" {
		found = append(found, auditLog(path))
	}
	return found
}

// authorities checks the authorities of client certificates. The rest of t must be valid.
func authorities(t server.TLSConfig) Finding {
	const check = "client authorities"
	if err := t.Check(); err != nil {
		return Finding{check, Fault, err.Error(), "fix server.tls.client_ca_file; the server does not start with it"}
	}
	return ok(check, "%s", t.ClientCAFile)
}

// tokens checks the token file.
func tokens(c auth.Config, dataDir string) Finding {
	const check = "tokens"
	path := c.Path(filepath.Join(dataDir, "tokens.json"))
	list, err := auth.List(path)
	switch {
	case err != nil:
		return Finding{check, Fault, err.Error(), "the server does not start with it. If permission is denied, chown it to the user of the server; if it is damaged, restore it, or remove it and create new tokens"}
	case len(list) == 0 && len(c.Rules) == 0:
		return Finding{check, Warning, path + " has no token, and there are no auth.rules: nobody has access", "varve token create"}
	}
	return ok(check, "%s has %d", path, len(list))
}

// auditLog checks whether this user can write the audit log.
func auditLog(path string) Finding {
	const check = "audit log"
	f, err := os.OpenFile(path, os.O_APPEND|os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		at, _ := nearest(filepath.Dir(path))
		if err = tryWriting(at); err == nil {
			return ok(check, "%s, will be created", path)
		}
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return Finding{check, Fault, err.Error(), "the server does not start without it. Chown the file to the user of the server, or set audit.file to another path"}
	}
	return ok(check, "%s", path)
}

// certificate checks the certificate of the listeners.
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
