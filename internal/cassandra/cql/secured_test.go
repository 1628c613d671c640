package cql_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
	"varve/internal/store"
)

var long = flag.Bool("cassandra.long", false, "run tests that start Cassandra nodes of their own")

func needLong(t *testing.T) {
	if !*long {
		t.Skip("starts Cassandra nodes of its own; run with -cassandra.long")
	}
}

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its certificate
}

func newAuthority(t *testing.T, name string) *authority {
	a := &authority{t: t}
	a.key, a.cert = a.certificate(name, nil, nil)
	a.file = a.write(name+"-ca.pem", a.cert, nil)
	return a
}

func (a *authority) certificate(name string, parent *x509.Certificate, ip net.IP) (*ecdsa.PrivateKey, *x509.Certificate) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	signer := a.key
	if parent == nil {
		parent, signer = template, key
		template.IsCA, template.BasicConstraintsValid = true, true
		template.KeyUsage |= x509.KeyUsageCertSign
	}
	if ip != nil {
		template.IPAddresses = []net.IP{ip}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return key, cert
}

// write writes a certificate, or a key, or both, and returns the file's name.
func (a *authority) write(name string, cert *x509.Certificate, key *ecdsa.PrivateKey) string {
	a.t.Helper()
	var text []byte
	if key != nil {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			a.t.Fatal(err)
		}
		text = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	}
	if cert != nil {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})...)
	}
	file := filepath.Join(a.t.TempDir(), name)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		a.t.Fatal(err)
	}
	return file
}

// securedYAML is laid over the settings of a node: TLS with client certificates,
// passwords, rights, guardrails, and small limits.
const securedYAML = `
authenticator: PasswordAuthenticator
authorizer: CassandraAuthorizer
permissions_validity: 100ms
roles_validity: 100ms
credentials_validity: 100ms
client_encryption_options:
  enabled: true
  optional: false
  require_client_auth: true
  keystore: %q
  truststore: %q
  ssl_context_factory:
    class_name: org.apache.cassandra.security.PEMBasedSslContextFactory
compact_tables_enabled: false
allow_filtering_enabled: false
tombstone_warn_threshold: 50
tombstone_failure_threshold: 200
native_transport_max_request_data_in_flight_per_ip: 256KiB
range_request_timeout: 100ms
`

// TestSecuredNode: a node with TLS, client certificates, users, rights and tight
// limits. Each wrong setting is told as what it is, and none is given up: when it
// is put right, the session connects.
func TestSecuredNode(t *testing.T) {
	needLong(t)
	ip := fmt.Sprintf("127.250.%d.%d", os.Getpid()/250%250, os.Getpid()%250+1)
	ca, other := newAuthority(t, "ours"), newAuthority(t, "other")
	serverKey, serverCert := ca.certificate("node", ca.cert, net.ParseIP(ip))
	clientKey, clientCert := ca.certificate("varve", ca.cert, nil)
	cluster := originals.StartCluster(t, originals.ClusterOptions{IP: ip,
		YAML: fmt.Sprintf(securedYAML, ca.write("node.pem", serverCert, serverKey), ca.file)})

	passwordFile := filepath.Join(t.TempDir(), "password")
	password := func(text string) {
		if err := os.WriteFile(passwordFile, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	password("cassandra")
	good := cqltest.Config(cluster.Addresses()...)
	good.Attempts = 2
	good.Username, good.PasswordFile = "cassandra", passwordFile
	good.TLS = cql.TLSConfig{Enabled: true, CAFile: ca.file, VerifyHost: true,
		CertFile: ca.write("client.pem", clientCert, nil), KeyFile: ca.write("client.key", nil, clientKey)}

	for _, c := range []struct {
		name   string
		change func(*cql.Config)
		want   string // in the reason, empty if it works
	}{
		{"good", func(c *cql.Config) {}, ""},
		{"no TLS", func(c *cql.Config) { c.TLS = cql.TLSConfig{} }, "tls.enabled"},
		{"system's authorities", func(c *cql.Config) { c.TLS.CAFile = "" }, "tls.ca_file"},
		{"another authority", func(c *cql.Config) { c.TLS.CAFile = other.file }, "unknown authority"},
		{"no client certificate", func(c *cql.Config) { c.TLS.CertFile, c.TLS.KeyFile = "", "" }, "tls.cert_file"},
		{"another name", func(c *cql.Config) { c.TLS.ServerName = "cassandra.test" }, "tls.verify_host"},
		{"another name, not checked", func(c *cql.Config) { c.TLS.ServerName, c.TLS.VerifyHost = "cassandra.test", false }, ""},
		{"another authority, name not checked", func(c *cql.Config) { c.TLS.CAFile, c.TLS.VerifyHost = other.file, false }, "unknown authority"},
		{"no user", func(c *cql.Config) { c.Username, c.PasswordFile = "", "" }, "asks for a user"},
		{"wrong password", func(c *cql.Config) { c.PasswordFile, c.Password = "", "guess" }, `refuses the password of user "cassandra"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := good
			c.change(&config)
			s, err := cql.Open(config, cql.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if c.want == "" {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				if err := s.Wait(ctx); err != nil {
					t.Error(err)
				}
				return
			}
			until(t, 30*time.Second, "told", func() bool { r := s.State().Reason; return r != "not connected yet" && r != "" })
			reason := s.State().Reason
			if s.State().Connected || !strings.Contains(reason, c.want) {
				t.Errorf("reason is %q, want one with %q", reason, c.want)
			}
			if strings.Contains(reason, "guess") {
				t.Error("the password is shown")
			}
			t.Log(reason)
		})
	}

	t.Run("password put right", func(t *testing.T) {
		password("wrong")
		s, err := cql.Open(good, cql.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		until(t, 30*time.Second, "refused", func() bool { return strings.Contains(s.State().Reason, "password") })
		password("cassandra")
		until(t, 30*time.Second, "connected", func() bool { return s.State().Connected })
	})

	admin := cqltest.Keyspace(t, good, cql.Options{})
	cqltest.Must(t, admin, table,
		"CREATE ROLE reader WITH PASSWORD = 'r' AND LOGIN = true", "CREATE ROLE maker WITH PASSWORD = 'm' AND LOGIN = true",
		fmt.Sprintf("GRANT SELECT ON KEYSPACE %s TO reader", admin.KeyspaceName()),
		fmt.Sprintf("GRANT ALL ON KEYSPACE %s TO maker", admin.KeyspaceName()))
	as := func(user, password string) *cql.Session {
		config := good
		config.Keyspace = admin.KeyspaceName()
		config.Username, config.Password, config.PasswordFile = user, cql.Secret(password), ""
		return cqltest.Open(t, config, cql.Options{})
	}
	refused := func(t *testing.T, err error, reason cql.Reason) {
		t.Helper()
		var r *cql.RefusedError
		if !errors.As(err, &r) || r.Reason != reason {
			t.Errorf("%v, want %s", err, reason)
		}
		t.Log(err)
	}
	t.Run("rights", func(t *testing.T) {
		s := as("reader", "r")
		if _, err := s.One(t.Context(), selectAll, []any{[]byte("k")}, nil, nil, nil); err != nil {
			t.Errorf("reading: %v", err)
		}
		refused(t, s.Exec(t.Context(), insert, 1, []byte("k"), []byte("c"), []byte("v")), cql.Unauthorized)
		refused(t, s.CreateKeyspace(t.Context(), "{'class': 'SimpleStrategy', 'replication_factor': '1'}"), cql.Unauthorized)
		if tables, err := s.Tables(t.Context()); err != nil || len(tables) != 1 {
			t.Errorf("tables: %v, %v", tables, err)
		}
	})
	t.Run("guardrails", func(t *testing.T) {
		s := as("maker", "m")
		refused(t, s.Change(t.Context(), &cql.Statement{Name: "make", Text: "CREATE TABLE c (a blob, b blob, c blob, PRIMARY KEY (a, b)) WITH COMPACT STORAGE"}), cql.GuardrailHit)
		rows := s.Query(t.Context(), &cql.Statement{Name: "filter", Text: "SELECT key FROM t WHERE value = ? ALLOW FILTERING", Scan: true}, []byte("v"))
		rows.Scan(nil)
		refused(t, rows.Close(), cql.GuardrailHit)
	})
	t.Run("tombstones", func(t *testing.T) {
		for i := range 300 {
			if err := admin.Exec(t.Context(), remove, 5, []byte("dead"), fmt.Append(nil, i), fmt.Append(nil, i)); err != nil {
				t.Fatal(err)
			}
		}
		_, err := admin.One(t.Context(), selectAll, []any{[]byte("dead")}, nil, nil, nil)
		var tombstones *cql.TombstoneError
		if !errors.As(err, &tombstones) || tombstones.Table != "t" {
			t.Errorf("reading 300 range deletes: %v", err)
		}
		t.Log(err)
	})
	// A search through all rows takes longer than the server allows.
	t.Run("read timeout", func(t *testing.T) {
		cqltest.Must(t, admin, "TRUNCATE t") // a fast node would come to the tombstones first
		value := make([]byte, 100)
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for p := w; p < 200; p += 4 {
					var b []cql.Entry
					for i := range 1000 {
						b = append(b, cql.Entry{Statement: insert, Args: []any{fmt.Appendf(nil, "p%d", p), fmt.Append(nil, i), value}})
					}
					if err := admin.Batch(t.Context(), 5, b); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		find := &cql.Statement{Name: "find", Text: "SELECT key FROM t WHERE value = ? ALLOW FILTERING", Scan: true}
		_, err := admin.One(t.Context(), find, []any{[]byte("none")}, nil)
		var unavailable *store.UnavailableError
		if !errors.As(err, &unavailable) || !strings.Contains(err.Error(), "failed 2 times: no answer in time") {
			t.Errorf("searching 200,000 rows in 100ms: %v", err)
		}
		t.Log(err)
	})
	// The server stops reading from an address that sent too much; it says
	// nothing. The limit on this side keeps that from becoming an error.
	t.Run("overload", func(t *testing.T) {
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				if err := admin.Exec(t.Context(), insert, 5, []byte("big"), fmt.Append(nil, i), make([]byte, 100<<10)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}
