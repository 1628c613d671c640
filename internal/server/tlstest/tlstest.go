// Package tlstest makes certificates for tests.
package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An Authority signs certificates.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	PEM  []byte
	sent []byte // beside the certificates that it signs: its own, if another one has signed it
}

// NewAuthority returns an authority of its own.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, key: newKey(t)}
	a.certify(a.sign(authority("a test's authority"), nil, a.key))
	return a
}

// Intermediate returns an authority that a vouches for. Issue appends the certificate of an
// intermediate authority to each one that it signs.
func (a *Authority) Intermediate() *Authority {
	a.t.Helper()
	below := &Authority{t: a.t, key: newKey(a.t)}
	below.certify(a.sign(authority("an intermediate one"), a.cert, below.key))
	below.sent = below.PEM
	return below
}

func authority(common string) *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{CommonName: common}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
}

// certify gives a its certificate.
func (a *Authority) certify(der []byte) {
	a.t.Helper()
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		a.t.Fatal(err)
	}
	a.PEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *Authority) sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	a.t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = serial
	if template.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-time.Hour)
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(24 * time.Hour)
	}
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

// Issue signs a certificate of a common name, with names of DNS, for servers on loopback
// and for clients. It returns both files of it as PEM.
func (a *Authority) Issue(common string, dns ...string) (cert, key []byte) {
	return a.issue(&x509.Certificate{Subject: pkix.Name{CommonName: common}, DNSNames: append(dns, "localhost")})
}

// Expired signs a certificate that has expired.
func (a *Authority) Expired(common string) (cert, key []byte) {
	return a.issue(&x509.Certificate{Subject: pkix.Name{CommonName: common}, NotAfter: time.Now().Add(-time.Minute)})
}

// Early signs a certificate that is valid from an hour on.
func (a *Authority) Early(common string) (cert, key []byte) {
	return a.issue(&x509.Certificate{Subject: pkix.Name{CommonName: common}, NotBefore: time.Now().Add(time.Hour)})
}

func (a *Authority) issue(template *x509.Certificate) (cert, key []byte) {
	a.t.Helper()
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	own := newKey(a.t)
	der := a.sign(template, a.cert, own)
	secret, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		a.t.Fatal(err)
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), a.sent...), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

// Client returns the configuration of a client that trusts the authority, and shows a
// certificate of the common name unless that is "".
func (a *Authority) Client(common string) *tls.Config {
	a.t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	c := &tls.Config{RootCAs: pool}
	if common != "" {
		pair, err := tls.X509KeyPair(a.Issue(common))
		if err != nil {
			a.t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}

// Write writes files of the names to a directory and returns their paths.
func Write(t testing.TB, dir string, files map[string][]byte) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
