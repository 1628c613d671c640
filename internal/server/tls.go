package server

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"varve/internal/safefile"
)

// TLSConfig are the settings of TLS.
type TLSConfig struct {
	CertFile     string   `yaml:"cert_file" doc:"PEM file with the server's certificate and its intermediate certificates. With it and key_file, the listeners of streams use TLS. SIGHUP and POST /admin/reload read the files again. Varve does not request certificates itself (ACME)."`
	KeyFile      string   `yaml:"key_file" doc:"PEM file with the private key of cert_file."`
	ClientCAFile string   `yaml:"client_ca_file" doc:"PEM file with the authorities whose client certificates are accepted. A client certificate is optional; auth.rules set which rights it gives. With a certificate of another authority, the handshake fails."`
	MinVersion   string   `yaml:"min_version" default:"1.2" doc:"Lowest TLS version, 1.2 or 1.3."`
	Streams      []string `yaml:"streams" doc:"Listeners that use TLS once cert_file is set. The others do not use it. UDP has no TLS."`
}

// SetDefaults lets all streams that can speak TLS do so.
func (c *TLSConfig) SetDefaults() { c.Streams = tlsStreams() }

// Check loads the files as a start of the server does, and returns its error.
func (c TLSConfig) Check() error {
	_, err := loadKeys(c)
	return err
}

func (c TLSConfig) on() bool { return c.CertFile != "" }

// Speaks reports whether TLS is spoken on a stream.
func (c TLSConfig) Speaks(stream string) bool { return c.on() && slices.Contains(c.Streams, stream) }

// tlsStreams are those that can speak TLS: all but those over UDP.
func tlsStreams() (names []string) {
	for _, st := range (Config{}).streams() {
		if !st.datagrams {
			names = append(names, st.name)
		}
	}
	return names
}

func (c TLSConfig) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if (c.CertFile == "") != (c.KeyFile == "") {
		bad("tls.cert_file: set server.tls.cert_file and server.tls.key_file, or neither")
	}
	if c.ClientCAFile != "" && !c.on() {
		bad("tls.client_ca_file: set server.tls.cert_file and server.tls.key_file too; without TLS nobody shows a certificate")
	}
	if c.MinVersion != "1.2" && c.MinVersion != "1.3" {
		bad("tls.min_version: %q: want 1.2 or 1.3", c.MinVersion)
	}
	for _, name := range c.Streams {
		if !slices.Contains(tlsStreams(), name) {
			bad("tls.streams: %q: want some of %s", name, strings.Join(tlsStreams(), ", "))
		}
	}
	return errors.Join(errs...)
}

// A keyring holds the certificates in use.
type keyring struct {
	current atomic.Pointer[keys]
}

// of returns the configuration for a new connection of a stream.
func (k *keyring) of(stream string) *tls.Config {
	current := k.current.Load()
	if stream == "http" || stream == "pprof" {
		return current.web
	}
	return current.lines
}

// keys are the files of a TLSConfig, ready for use.
type keys struct {
	web, lines *tls.Config // of HTTP, and of all else
	digest     [sha256.Size]byte

	file            string // the server's certificate
	begins, expires time.Time
}

// trouble says why clients refuse the server's certificate at a time, "" if its dates are no
// reason. Anybody may read the text, so it does not name the file.
func (k *keys) trouble(now time.Time) string {
	switch {
	case now.Before(k.begins):
		return fmt.Sprintf("the certificate is not valid before %s; check the clock of this machine", k.begins.UTC().Format(time.RFC3339))
	case now.After(k.expires):
		return fmt.Sprintf("the certificate expired on %s; get a new one and reload", k.expires.UTC().Format(time.RFC3339))
	}
	return ""
}

// useKeys puts certificates into use for new connections. One that is not valid yet is used too:
// often the clock of this machine is wrong, and will be corrected.
func (s *Server) useKeys(k *keys) {
	s.keyring.current.Store(k)
	if trouble := k.trouble(time.Now()); trouble != "" {
		s.log.Warn("TLS: clients will refuse the certificate; the server uses it anyway", "cert_file", k.file, "trouble", trouble)
	}
}

// certificateTrouble is that of the certificate in use, "" without TLS.
func (s *Server) certificateTrouble() string {
	if k := s.keyring.current.Load(); k != nil {
		return k.trouble(time.Now())
	}
	return ""
}

// loadKeys reads the files that c names.
func loadKeys(c TLSConfig) (*keys, error) {
	var texts [3][]byte
	digest := sha256.New()
	names := []string{"cert_file", "key_file", "client_ca_file"}
	for i, path := range []string{c.CertFile, c.KeyFile, c.ClientCAFile} {
		if path == "" {
			continue
		}
		text, err := safefile.ReadRegular(path, maxKeyFile)
		if err != nil {
			return nil, fmt.Errorf("server.tls.%s: %w", names[i], err)
		}
		texts[i] = text
		fmt.Fprintf(digest, "%d:%s", len(text), text)
	}
	fmt.Fprint(digest, c.MinVersion)
	pair, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		return nil, fmt.Errorf("TLS: certificate %s with key %s: %w", c.CertFile, c.KeyFile, err)
	}
	if now := time.Now(); now.After(pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("TLS: certificate %s expired on %s; get a new one", c.CertFile, pair.Leaf.NotAfter.Format(time.DateOnly))
	}
	own := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if c.MinVersion == "1.3" {
		own.MinVersion = tls.VersionTLS13
	}
	if c.ClientCAFile != "" {
		if own.ClientCAs, err = authorities(texts[2]); err != nil {
			return nil, fmt.Errorf("TLS: client_ca_file %s: %w", c.ClientCAFile, err)
		}
		own.ClientAuth = tls.VerifyClientCertIfGiven
		// A resumed session would keep the trust of earlier authorities.
		own.SessionTicketsDisabled = true
	}
	k := &keys{web: own.Clone(), lines: own, file: c.CertFile, begins: pair.Leaf.NotBefore, expires: pair.Leaf.NotAfter}
	k.web.NextProtos = []string{http2, http1}
	first := own.Clone()
	first.NextProtos = []string{http1}
	k.web.GetConfigForClient = offering(first)
	digest.Sum(k.digest[:0])
	return k, nil
}

// maxKeyFile limits the size of a file of certificates.
const maxKeyFile = 4 << 20

// authorities parses certificates. Any other text is an error: otherwise an authority that was
// truncated would go unnoticed.
func authorities(text []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	n := 0
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("it contains a %q block; want certificates only", block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", n+1, err)
		}
		pool.AddCert(cert)
		n++
	}
	if n == 0 {
		return nil, errors.New("it contains no PEM certificate")
	}
	if len(strings.TrimSpace(string(text))) > 0 {
		return nil, fmt.Errorf("the text after certificate %d is not a certificate", n)
	}
	return pool, nil
}

// ReadTLS reads the TLS files again. It returns a function that puts them into use for new
// connections, or nil if nothing has changed. The function also ends requests and connections whose
// client certificate no authority vouches for any longer.
func (s *Server) ReadTLS(c Config) (apply func(), err error) {
	if c.TLS.on() != s.config.TLS.on() {
		return nil, errors.New("server.tls.cert_file: turning TLS on or off needs a restart")
	}
	if !c.TLS.on() {
		return nil, nil
	}
	next, err := loadKeys(c.TLS)
	if err != nil {
		return nil, err
	}
	if next.digest == s.keyring.current.Load().digest {
		return nil, nil
	}
	return func() {
		s.useKeys(next)
		if s.keeper != nil {
			s.keeper.Recheck() // an authority may have been removed
		}
		s.log.Info("TLS: certificates reloaded; new connections use them", "cert_file", c.TLS.CertFile, "expires", next.expires)
	}, nil
}
